#!/bin/bash
# DuckDB 1.5.6 (npm @duckdb/node-api 1.5.6-r.1) on CSV of this field: layouts and unbounded times become dates.
# Guess: a column of inf is a DOUBLE, as a column of nan is, and 1-8-4 is text.
# Seen: a column of inf alone is a DATE in the year 5881580; layouts of tensor, pipeline and data parallel ranks, 1-8-4 and 2-4-4, are
# a TIMESTAMP (4 August of the year 1), and so are shapes such as 10-12-01. With one other word in the column all stay text.
# For users: read_csv(..., auto_type_candidates=['BIGINT','DOUBLE','BOOLEAN','VARCHAR']) keeps both.
source "$(dirname "$0")/common.sh"
npm_packages @duckdb/node-api@1.5.6-r.1
printf 'kernel,high_us\na,inf\nb,inf\n' >inf.csv
printf 'kernel,high_us\na,nan\nb,nan\n' >nan.csv
printf 'layout,step_ms\n1-8-4,3.5\n2-4-4,4.5\n' >layouts.csv
cat >read.mjs <<'JS'
import { DuckDBInstance } from "@duckdb/node-api";
const connection = await (await DuckDBInstance.create()).connect();
const ask = async (question) => (await connection.runAndReadAll(question)).getRows().map((row) => row.map(String).join(" "));
for (const file of ["inf", "nan", "layouts"]) {
  const columns = await ask(`select column_name, column_type from (describe select * from '${file}.csv')`);
  console.log(`${file}.csv:`, columns.join(", "), "|", (await ask(`select * from '${file}.csv'`))[0]);
}
const types = "auto_type_candidates=['BIGINT','DOUBLE','BOOLEAN','VARCHAR']";
for (const file of ["inf", "layouts"]) console.log(`with candidates:`, (await ask(`select * from read_csv('${file}.csv', ${types})`))[0]);
JS
node read.mjs >seen.txt
expect <<'SEEN'
inf.csv: kernel VARCHAR, high_us DATE | a 5881580-07-11
nan.csv: kernel VARCHAR, high_us DOUBLE | a NaN
layouts.csv: layout TIMESTAMP, step_ms DOUBLE | 0001-08-04 00:00:00 3.5
with candidates: a Infinity
with candidates: 1-8-4 3.5
SEEN
