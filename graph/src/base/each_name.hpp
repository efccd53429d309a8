#pragma once

/// PERFMODEL_EACH(ROW, about, a, b) is ROW(about, a), ROW(about, b).
#define PERFMODEL_EACH(ROW, about, ...) PERFMODEL_SCAN_3(PERFMODEL_ROW(ROW, about, __VA_ARGS__))
#define PERFMODEL_ROW(ROW, about, name, ...) \
  ROW(about, name) __VA_OPT__(, PERFMODEL_NEXT_ROW PERFMODEL_NOTHING()()(ROW, about, __VA_ARGS__))
#define PERFMODEL_NEXT_ROW() PERFMODEL_ROW
#define PERFMODEL_NOTHING()
// A scan of the preprocessor expands one more row: there may be 27 at least.
#define PERFMODEL_SCAN_1(...) PERFMODEL_SCAN_0(PERFMODEL_SCAN_0(PERFMODEL_SCAN_0(__VA_ARGS__)))
#define PERFMODEL_SCAN_2(...) PERFMODEL_SCAN_1(PERFMODEL_SCAN_1(PERFMODEL_SCAN_1(__VA_ARGS__)))
#define PERFMODEL_SCAN_3(...) PERFMODEL_SCAN_2(PERFMODEL_SCAN_2(PERFMODEL_SCAN_2(__VA_ARGS__)))
#define PERFMODEL_SCAN_0(...) __VA_ARGS__

/// PERFMODEL_FIELDS(Op, count, bytes) is {"count", &Op::count}, {"bytes", &Op::bytes}: the fields
/// of a table that are named like their members.
#define PERFMODEL_FIELDS(Type, ...) PERFMODEL_EACH(PERFMODEL_FIELD, Type, __VA_ARGS__)
#define PERFMODEL_FIELD(Type, name) \
  { #name, &Type::name }

/// PERFMODEL_VALUES(op, count, bytes) is {"count", op.count}, {"bytes", op.bytes}.
#define PERFMODEL_VALUES(of, ...) PERFMODEL_EACH(PERFMODEL_VALUE, of, __VA_ARGS__)
#define PERFMODEL_VALUE(of, name) \
  { #name, of.name }

/// PERFMODEL_READ(to, row.count, a, b) is to.a = row.count("a"), to.b = row.count("b").
#define PERFMODEL_READ(to, read, ...) PERFMODEL_EACH(PERFMODEL_READ_ONE, (to, read), __VA_ARGS__)
#define PERFMODEL_READ_ONE(both, name) PERFMODEL_TO both.name = PERFMODEL_FROM both(#name)

/// PERFMODEL_COPY(to, from, a, b) is to.a = from.a, to.b = from.b.
#define PERFMODEL_COPY(to, from, ...) PERFMODEL_EACH(PERFMODEL_COPY_ONE, (to, from), __VA_ARGS__)
#define PERFMODEL_COPY_ONE(both, name) PERFMODEL_TO both.name = PERFMODEL_FROM both.name
#define PERFMODEL_TO(to, from) to
#define PERFMODEL_FROM(to, from) from
