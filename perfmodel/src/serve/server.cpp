#include "server.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "answers.hpp"
#include "bell.hpp"
#include "client.hpp"
#include "descriptor.hpp"
#include "descriptor_limit.hpp"
#include "fair_queue.hpp"
#include "listener.hpp"
#include "login.hpp"

namespace perfmodel::serve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kDrain{5};   // for clients that do not take their answers
constexpr std::chrono::seconds kLogin{10};  // for the first line of a client of TCP

// Descriptors that the server itself and the command of each thread need.
constexpr std::size_t kOwnDescriptors = 32, kPerThread = 8;

// A call of the system that failed is tried again after this time, not at once for good.
constexpr std::chrono::milliseconds kRest{10};

void rest() { std::this_thread::sleep_for(kRest); }

void refuse(int socket, const std::string& expected) {
  const std::string line = error_line("busy", expected + ", found one more") + "\n";
  [[maybe_unused]] const auto sent =
      send(socket, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  close(socket);
}

int spare_descriptor() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

struct Server::State {
  struct Job {
    std::shared_ptr<Client> client;
    Client::Line line;
    Clock::time_point arrived = Clock::now();
  };
  struct Answer {
    std::shared_ptr<Client> client;
    std::string line;
  };

  State(Service& s, const ServerOptions& o) : service(s), options(o) {}
  ~State() { close(spare); }

  Service& service;
  ServerOptions options;
  std::optional<Listener> listener;
  Bell bell;
  std::atomic<bool> stop_asked = false;

  // Between the thread of `run` and the workers.
  std::mutex mutex;
  std::condition_variable_any has_jobs;
  std::condition_variable_any has_costly;
  std::deque<Job> jobs;  // bounded: each client has few in work
  FairQueue<Client*, Job> costly;
  std::size_t costly_threads = 0, most_per_client = 1;
  std::vector<Answer> answers;

  // Only the thread of `run` uses these.
  std::vector<std::shared_ptr<Client>> clients;
  std::size_t most_clients = 0;
  int spare = spare_descriptor();  // given up to refuse a client if there is no other descriptor
  Clock::time_point accept_again = {};
  bool draining = false;
  Clock::time_point last_progress;
  bool output_lost = false;

  Result<void> run();
  void work(const std::stop_token& stop);
  void work_costly(const std::stop_token& stop);
  void answer(Job job);
  void submit(const std::shared_ptr<Client>& client);
  void login(Client& client, const Client::Line& line);
  bool is_on_input() const { return options.socket.empty() && options.listen.empty(); }
  void take_answers();
  void begin_drain();
  bool is_over() const;
  void accept_clients();
  void refuse_by_spare();
  void admit(int socket);
  std::size_t connections_of(const std::string& peer) const;
  std::vector<pollfd> watched() const;
  int poll_time() const;
  void wait(std::vector<pollfd>& watched);
  void serve(const std::vector<pollfd>& watched);
  void serve(const std::shared_ptr<Client>& client, short in_events, short out_events);
  bool read_from(Client& client);
  void submit_all();
  void drop_strangers();
  void start_workers(std::vector<std::jthread>& workers);
  void drop(Client& client);
};

void Server::State::work(const std::stop_token& stop) {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex);
      if (!has_jobs.wait(lock, stop, [&] { return !jobs.empty(); })) return;
      job = std::move(jobs.front());
      jobs.pop_front();
      service.backlog().quick = jobs.size();
    }
    answer(std::move(job));
  }
}

void Server::State::work_costly(const std::stop_token& stop) {
  // Clients with small requests get the processor before clients with large ones.
  constexpr int kLowPriority = 10;
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowPriority);
  for (;;) {
    std::optional<Job> job;
    {
      std::unique_lock lock(mutex);
      if (!has_costly.wait(lock, stop, [&] { return costly.ready(most_per_client); })) return;
      job = costly.pop(most_per_client);
      service.backlog().costly = costly.size();
    }
    Client* const client = job->client.get();
    const std::shared_ptr<Client> kept = job->client;  // its address is the name of its turn
    answer(std::move(*job));
    {
      const std::lock_guard lock(mutex);
      costly.finished(client);
    }
    has_costly.notify_one();
  }
}

void Server::State::answer(Job job) {
  const Caller& caller = job.client->caller();
  Answer made{job.client, {}};
  if (!caller.gone.stop_requested()) {
    made.line = job.line.is_too_large
                    ? service.answer_too_large(options.max_request, caller, job.arrived)
                    : service.answer(std::move(job.line.text), caller, job.arrived);
  }
  bool first = false;
  {
    const std::lock_guard lock(mutex);
    first = answers.empty();
    answers.push_back(std::move(made));
  }
  if (first) bell.ring();
}

void Server::State::submit(const std::shared_ptr<Client>& client) {
  while (auto line = client->next_line()) {
    if (!client->is_trusted()) {
      login(*client, *line);
      continue;
    }
    const bool is_costly =
        costly_threads > 0 && !line->is_too_large && service.is_costly(line->text);
    {
      const std::lock_guard lock(mutex);
      if (is_costly) {
        costly.push(client.get(), {client, std::move(*line)});
      } else {
        jobs.push_back({client, std::move(*line)});
      }
      service.backlog().quick = jobs.size();
      service.backlog().costly = costly.size();
    }
    (is_costly ? has_costly : has_jobs).notify_one();
  }
}

void Server::State::take_answers() {
  std::vector<Answer> taken;
  {
    const std::lock_guard lock(mutex);
    taken.swap(answers);
  }
  for (Answer& answer : taken) answer.client->add_answer(std::move(answer.line));
  if (!taken.empty()) last_progress = Clock::now();
}

void Server::State::begin_drain() {
  draining = true;
  last_progress = Clock::now();
  listener.reset();
  for (const auto& client : clients) client->end_reading();
}

bool Server::State::is_over() const {
  if (is_on_input() && clients.empty()) return true;
  if (!draining) return false;
  const bool idle = std::ranges::all_of(clients, [](const auto& c) { return c->is_idle(); });
  if (idle) return true;
  // Work goes on as long as it takes; unread answers do not.
  const bool working = std::ranges::any_of(
      clients, [](const auto& c) { return !c->wants_writing() && !c->is_idle(); });
  return !working && Clock::now() - last_progress > kDrain;
}

std::size_t Server::State::connections_of(const std::string& peer) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(clients, [&](const auto& client) { return client->peer() == peer; }));
}

void Server::State::admit(int socket) {
  if (clients.size() >= most_clients) {
    return refuse(socket, fmt::format("expected at most {} clients", most_clients));
  }
  std::string peer = peer_of(socket);
  if (options.max_connections > 0 && connections_of(peer) >= options.max_connections) {
    return refuse(socket, fmt::format("expected at most {} connections of one client",
                                      options.max_connections));
  }
  Caller caller{.folder = options.files, .name = peer};
  auto client = std::make_shared<Client>(
      ClientSocket{.in = socket, .out = socket, .is_socket = true, .peer = std::move(peer)},
      ClientLimits{kLongestLogin, options.max_rate}, std::move(caller));
  if (options.listen.empty()) client->trust(options.max_request);
  clients.push_back(std::move(client));
}

// The first line of a client of TCP. Another one than a login with the token ends the connection.
void Server::State::login(Client& client, const Client::Line& line) {
  const Login asked = line.is_too_large ? Login{} : read_login(line.text);
  if (equal_in_equal_time(asked.token, options.token)) {
    client.trust(options.max_request);
    return client.add_answer(result_line(asked.id, Json::object()));
  }
  client.add_answer(error_line(asked.id, "unauthorized",
                               "expected {\"op\": \"login\", \"token\": ...} with the token of "
                               "this server first, found another line"));
  client.end_reading();
}

// Without a descriptor no client could even hear that there is none for it.
void Server::State::refuse_by_spare() {
  if (spare < 0) return;
  close(spare);
  const int got = listener->accept();
  if (got >= 0) refuse(got, "expected fewer open files of this server");
  spare = spare_descriptor();
}

void Server::State::accept_clients() {
  for (int got = listener->accept(); got >= 0; got = listener->accept()) admit(got);
  if (errno == EAGAIN || errno == EWOULDBLOCK) return;
  if (errno == EMFILE) refuse_by_spare();
  accept_again = Clock::now() + kRest;
}

void Server::State::drop(Client& client) {
  client.drop();
  output_lost |= !client.is_socket();
}

// A line for which there is no memory costs its connection alone.
bool Server::State::read_from(Client& client) {
  try {
    return client.read();
  } catch (const std::bad_alloc&) {
    if (!client.is_socket()) throw;
    return false;
  }
}

void Server::State::serve(const std::shared_ptr<Client>& client, short in_events,
                          short out_events) {
  bool alive = true;
  constexpr short kLost = POLLHUP | POLLERR | POLLNVAL;
  if (in_events & POLLIN || (!client->is_socket() && in_events & kLost)) {
    alive = read_from(*client);
  } else if (client->is_socket() && in_events & kLost) {
    alive = false;  // both directions are closed: the client reads no answers
  }
  if (!client->is_socket() && out_events & (POLLERR | POLLNVAL)) alive = false;
  if (alive && out_events & POLLOUT && client->wants_writing()) {
    alive = client->write();
    last_progress = Clock::now();
  }
  if (!alive) {
    drop(*client);
    std::erase(clients, client);
  }
}

// The bell, the listener, then each client: a socket is one entry, standard input and output two.
std::vector<pollfd> Server::State::watched() const {
  std::vector<pollfd> watched;
  const auto watch = [&](int descriptor, bool wanted, short events) {
    watched.push_back({wanted ? descriptor : -1, events, 0});
  };
  watch(bell.descriptor(), true, POLLIN);
  watch(listener ? listener->descriptor() : -1, Clock::now() >= accept_again, POLLIN);
  for (const auto& client : clients) {
    const bool in = client->wants_reading(), out = client->wants_writing();
    if (client->is_socket()) {  // always watched, for clients that go away
      watch(client->in(), true, static_cast<short>((in ? POLLIN : 0) | (out ? POLLOUT : 0)));
    } else {
      watch(client->in(), in, POLLIN);
      watch(client->out(), out, POLLOUT);
    }
  }
  return watched;
}

// Milliseconds until something is due that no descriptor tells; -1: nothing is.
int Server::State::poll_time() const {
  const auto now = Clock::now();
  auto due = draining ? now + std::chrono::milliseconds(100) : Clock::time_point::max();
  if (accept_again > now) due = std::min(due, accept_again);
  for (const auto& client : clients) {
    if (client->may_ask_from() > now) due = std::min(due, client->may_ask_from());
    if (!client->is_trusted()) due = std::min(due, std::max(now, client->connected() + kLogin));
  }
  if (due == Clock::time_point::max()) return -1;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(due - now).count());
}

void Server::State::wait(std::vector<pollfd>& watched) {
  if (poll(watched.data(), watched.size(), poll_time()) >= 0 || errno == EINTR) return;
  for (pollfd& entry : watched) entry.revents = 0;
  const bool too_many = errno == EINVAL;  // the limit of descriptors was lowered meanwhile
  rest();
  if (too_many && !clients.empty() && clients.back()->is_socket()) {
    drop(*clients.back());
    clients.pop_back();
    watched.pop_back();
  }
}

void Server::State::serve(const std::vector<pollfd>& watched) {
  std::size_t at = 2;
  const auto present = clients;  // in the order of `watched`
  for (const auto& client : present) {
    const short in = watched[at++].revents;
    serve(client, in, client->is_socket() ? in : watched[at++].revents);
  }
}

// A client for whose lines there is no memory goes; the others stay.
void Server::State::submit_all() {
  std::erase_if(clients, [this](const auto& client) {
    try {
      submit(client);
      return client->is_done();
    } catch (const std::bad_alloc&) {
      if (!client->is_socket()) throw;
      drop(*client);
      return true;
    }
  });
}

// Clients that do not log in would keep others out.
void Server::State::drop_strangers() {
  const auto late = Clock::now() - kLogin;
  std::erase_if(clients, [&](const auto& client) {
    return !client->is_trusted() && client->connected() <= late;
  });
}

void Server::State::start_workers(std::vector<std::jthread>& workers) {
  const std::size_t threads =
      options.threads ? options.threads : std::thread::hardware_concurrency();
  for (std::size_t i = 0; i < std::max<std::size_t>(threads, 1); ++i) {
    workers.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
  costly_threads = options.costly_threads.value_or(threads / 2);
  most_per_client = std::max<std::size_t>(costly_threads, 2) - 1;
  for (std::size_t i = 0; i < costly_threads; ++i) {
    workers.emplace_back([this](const std::stop_token& stop) { work_costly(stop); });
  }
}

Result<void> Server::State::run() {
  std::signal(SIGPIPE, SIG_IGN);  // told by write()
  std::signal(SIGCHLD, SIG_DFL);  // else the system forgets how a command ended
  if (is_on_input()) {
    clients.push_back(std::make_shared<Client>(
        ClientSocket{.in = STDIN_FILENO, .out = STDOUT_FILENO},
        ClientLimits{options.max_request, 0}, Caller{.any_file = true, .name = "standard input"}));
    clients.back()->trust(options.max_request);
  }
  std::vector<std::jthread> workers;
  start_workers(workers);
  while (!is_over()) {
    auto polled = watched();
    wait(polled);
    if (!bell.silence()) rest();
    take_answers();
    serve(polled);
    if (listener && polled[1].revents != 0) accept_clients();
    submit_all();
    drop_strangers();
    if (stop_asked && !draining) begin_drain();
  }
  for (const auto& client : clients) client->drop();
  clients.clear();
  listener.reset();
  workers.clear();  // each ends after its request, which was cancelled if it was running
  {
    const std::lock_guard lock(mutex);
    jobs.clear();
    costly.clear();
    answers.clear();
  }
  if (output_lost) {
    return fail(ErrorCode::kIo, "expected a writable standard output, found one that is not");
  }
  return {};
}

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}
Server::Server(Server&&) noexcept = default;
Server::~Server() = default;

Result<Server> Server::open(Service& service, const ServerOptions& options) {
  auto state = std::make_unique<State>(service, options);
  if (state->bell.descriptor() < 0) {
    return fail(ErrorCode::kIo, "expected one more open file, found none to have");
  }
  const std::size_t others =
      kOwnDescriptors + kPerThread * (options.threads + options.costly_threads.value_or(0));
  state->most_clients = room_for_clients(options.max_clients, others);
  if (!state->is_on_input()) {
    PERFMODEL_TRY(listener, options.listen.empty() ? Listener::open(options.socket)
                                                   : Listener::open_tcp(options.listen));
    state->listener.emplace(std::move(*listener));
  }
  return Server(std::move(state));
}

Result<void> Server::run() {
  try {
    return state_->run();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "out of memory");
  } catch (const std::system_error& error) {
    return decline(error.what());
  }
}

void Server::stop() noexcept {
  state_->stop_asked = true;
  state_->bell.ring();
}

}  // namespace perfmodel::serve
