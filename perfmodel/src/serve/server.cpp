#include "server.hpp"

#include <poll.h>
#include <sys/eventfd.h>
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
#include "client.hpp"
#include "descriptor.hpp"
#include "fair_queue.hpp"
#include "listener.hpp"

namespace perfmodel::serve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kDrain{5};  // for clients that do not take their answers

// An eventfd: wakes a thread that polls.
class Bell {
 public:
  void ring() const noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(descriptor(), &one, sizeof one);
  }
  void silence() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(descriptor(), &count, sizeof count);
  }
  int descriptor() const { return descriptor_.number(); }

 private:
  Descriptor descriptor_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

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
  bool draining = false;
  Clock::time_point last_progress;
  bool output_lost = false;

  Result<void> run();
  void work(const std::stop_token& stop);
  void work_costly(const std::stop_token& stop);
  void answer(Job job);
  void submit(const std::shared_ptr<Client>& client);
  void take_answers();
  void begin_drain();
  bool is_over() const;
  void accept_clients();
  void wait(std::vector<pollfd>& watched);
  void serve(const std::shared_ptr<Client>& client, short in_events, short out_events);
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
                    ? service.answer_too_large(options.max_request)
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
  if (options.socket.empty() && clients.empty()) return true;
  if (!draining) return false;
  const bool idle = std::ranges::all_of(clients, [](const auto& c) { return c->is_idle(); });
  if (idle) return true;
  // Work goes on as long as it takes; unread answers do not.
  const bool working = std::ranges::any_of(
      clients, [](const auto& c) { return !c->wants_writing() && !c->is_idle(); });
  return !working && Clock::now() - last_progress > kDrain;
}

void Server::State::accept_clients() {
  for (int got = listener->accept(); got >= 0; got = listener->accept()) {
    if (clients.size() >= options.max_clients) {
      const std::string refusal = error_line("busy",
                                             "expected fewer clients, found one more than "
                                             "this server takes") +
                                  "\n";
      [[maybe_unused]] const auto sent =
          send(got, refusal.data(), refusal.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      close(got);
      continue;
    }
    clients.push_back(std::make_shared<Client>(got, got, true, options.max_request,
                                               Caller{.folder = options.files}));
  }
  if (errno == EMFILE || errno == ENFILE) {  // poll would come back at once
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void Server::State::drop(Client& client) {
  client.drop();
  output_lost |= !client.is_socket();
}

void Server::State::serve(const std::shared_ptr<Client>& client, short in_events,
                          short out_events) {
  bool alive = true;
  constexpr short kLost = POLLHUP | POLLERR | POLLNVAL;
  if (in_events & POLLIN || (!client->is_socket() && in_events & kLost)) {
    alive = client->read();
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

void Server::State::wait(std::vector<pollfd>& watched) {
  watched.clear();
  const auto watch = [&](int descriptor, bool wanted, short events) {
    watched.push_back({wanted ? descriptor : -1, events, 0});
  };
  watch(bell.descriptor(), true, POLLIN);
  watch(listener ? listener->descriptor() : -1, listener.has_value(), POLLIN);
  for (const auto& client : clients) {
    const bool in = client->wants_reading(), out = client->wants_writing();
    if (client->is_socket()) {  // always watched, for clients that go away
      watch(client->in(), true, static_cast<short>((in ? POLLIN : 0) | (out ? POLLOUT : 0)));
      watch(-1, false, 0);
    } else {
      watch(client->in(), in, POLLIN);
      watch(client->out(), out, POLLOUT);
    }
  }
  while (poll(watched.data(), watched.size(), draining ? 100 : -1) < 0 && errno == EINTR) {
  }
}

Result<void> Server::State::run() {
  std::signal(SIGPIPE, SIG_IGN);  // told by write()
  if (options.socket.empty()) {
    clients.push_back(std::make_shared<Client>(STDIN_FILENO, STDOUT_FILENO, false,
                                               options.max_request, Caller{.any_file = true}));
  }
  std::size_t threads = options.threads ? options.threads : std::thread::hardware_concurrency();
  std::vector<std::jthread> workers;
  for (std::size_t i = 0; i < std::max<std::size_t>(threads, 1); ++i) {
    workers.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
  costly_threads = options.costly_threads.value_or(threads / 2);
  most_per_client = std::max<std::size_t>(costly_threads, 2) - 1;
  for (std::size_t i = 0; i < costly_threads; ++i) {
    workers.emplace_back([this](const std::stop_token& stop) { work_costly(stop); });
  }
  std::vector<pollfd> watched;
  while (!is_over()) {
    wait(watched);
    bell.silence();
    take_answers();
    const auto present = clients;  // in the order of `watched`
    for (std::size_t i = 0; i < present.size(); ++i) {
      const pollfd &in = watched[2 + 2 * i], &out = watched[3 + 2 * i];
      serve(present[i], in.revents, present[i]->is_socket() ? in.revents : out.revents);
    }
    if (listener && watched[1].revents & POLLIN) accept_clients();
    for (const auto& client : clients) submit(client);
    std::erase_if(clients, [](const auto& client) { return client->is_done(); });
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
  if (!options.socket.empty()) {
    auto listener = Listener::open(options.socket);
    if (!listener) return Unexpected{listener.error()};
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
    return fail(ErrorCode::kImpossible, error.what());
  }
}

void Server::stop() noexcept {
  state_->stop_asked = true;
  state_->bell.ring();
}

}  // namespace perfmodel::serve
