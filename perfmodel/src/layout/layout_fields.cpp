#include "layout_fields.hpp"

#include <algorithm>

namespace perfmodel {
namespace {

using Ask = LayoutAsk;

constexpr FieldRange kCount = {1, double(std::int64_t{1} << 40)};

constexpr LayoutField count(std::string_view name, FieldMember<Ask> member, std::string_view help) {
  return {{name, member, help, "N", kCount}};
}
constexpr LayoutField amount(std::string_view name, FieldMember<Ask> member, std::string_view help,
                             std::string_view takes, FieldRange range) {
  return {{name, member, help, takes, range}};
}
constexpr LayoutField word(std::string_view name, FieldMember<Ask> member, std::string_view help,
                           std::string_view takes, std::string_view choices = {}) {
  return {{name, member, help, takes, {}, choices}};
}
// The fields that a table has columns for.
constexpr LayoutField size(std::string_view name, FieldMember<Ask> member, std::string_view help,
                           FieldRange range = kCount) {
  return {{name, member, help, "N", range}, {}, true};
}
constexpr LayoutField choice(std::string_view name, FieldMember<Ask> member,
                             std::string_view help) {
  return {{name, member, help}, {}, true};
}
constexpr LayoutField job_choice(std::string_view name, FieldMember<Ask> member,
                                 std::string_view help) {
  return {{name, member, help}};
}
constexpr LayoutField row_word(std::string_view name, FieldMember<Ask> member,
                               std::string_view help, std::string_view takes,
                               std::string_view choices) {
  return {{name, member, help, takes, {}, choices}, {}, true};
}
constexpr LayoutField ranks(std::string_view name, FieldMember<Ask> member,
                            std::vector<std::int64_t> LayoutLists::*list, std::string_view help) {
  return {{name, member, help, "N,N,...", kCount}, list, true};
}
constexpr LayoutField names(std::string_view name, FieldMember<Ask> member,
                            std::vector<std::string> LayoutLists::*list, std::string_view help,
                            std::string_view takes) {
  return {{name, member, help, takes}, list, true};
}

constexpr LayoutField kLayoutFields[] = {
#define LAYOUT_FIELD(type, name, kind, ...) kind(#name, &Ask::name, __VA_ARGS__),
#define LAYOUT_LIST(type, name, kind, ...) kind(#name, &Ask::name, &LayoutLists::name, __VA_ARGS__),
#include "layout_fields.def"
#undef LAYOUT_FIELD
#undef LAYOUT_LIST
};

}  // namespace

std::span<const LayoutField> layout_fields() { return kLayoutFields; }

const LayoutField* find_layout_field(std::string_view name) {
  const auto found = std::ranges::find(kLayoutFields, name, &LayoutField::name);
  return found == std::end(kLayoutFields) ? nullptr : &*found;
}

}  // namespace perfmodel
