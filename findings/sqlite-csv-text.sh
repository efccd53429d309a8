#!/bin/bash
# SQLite 3.40.1 (Debian 12, sqlite3 3.40.1-2+deb12u2) on CSV of this field: columns of times are text.
# Guess: times of a CSV that is imported compare as numbers, as they do in SQL on other tables and in DuckDB.
# Seen: .import makes every column TEXT. Sums and means are right, but the largest of 9.5, 10.2 and 1000 us is 9.5, the order is 10.2, 1000, 9.5, and
# 9.5 (not 1000) is above 20 us. In a table of REAL columns that is made first all are right.
# For users: create the table before .import, or write time_us + 0 in every comparison.
source "$(dirname "$0")/common.sh"
debian sqlite3=3.40.1-2+deb12u2
printf 'id,time_us\n1,9.5\n2,10.2\n3,1000\n' >kernels.csv
questions="select max(time_us), sum(time_us), (select group_concat(id, ' ') from (select id from kernels order by time_us)),
  (select group_concat(id, ' ') from kernels where time_us > 20) from kernels"
{
  sqlite3 :memory: '.mode csv' '.import kernels.csv kernels' '.mode list' \
    "select typeof(time_us) from kernels limit 1" "$questions"
  sqlite3 :memory: 'create table kernels(id integer, time_us real)' '.mode csv' '.import --skip 1 kernels.csv kernels' '.mode list' \
    "select typeof(time_us) from kernels limit 1" "$questions"
} >seen.txt
expect <<'SEEN'
text
9.5|1019.7|2 3 1|1
real
1000.0|1019.7|1 2 3|3
SEEN
