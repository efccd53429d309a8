// Two steps side by side: what changed, to the sum.

const signed = (us) => (us < 0 ? '−' : '+') + time(Math.abs(us));
const signedPercent = (share) => (share < 0 ? '−' : '+') + percent(Math.abs(share));

function comparisonSentence(comparison) {
  const {before, after, before_us, after_us, tables} = comparison, change = after_us - before_us;
  const [name, was, is, most] = tables[1].rows[0];
  return `${after} takes ${time(after_us)} per step, ${before} ${time(before_us)}: ${signed(change)} (${signedPercent(change / before_us)}).` +
    (Math.abs(most) > 0 ? ` The largest change: ${name}, ${time(was)} to ${time(is)}.` : '');
}

// From one step to the other in bars: the largest changes, and the rest in one.
function changeBars(comparison, rows, holder) {
  const shown = 9, listed = rows.slice(0, shown), rest = rows.slice(shown).reduce((sum, row) => sum + row[3], 0);
  const bars = [[comparison.before, 0, comparison.before_us, null]];
  let at = comparison.before_us;
  for (const [name, change] of listed.map((row) => [row[0], row[3]]).concat(rows.length > shown ? [[`${rows.length - shown} more`, rest]] : [])) {
    bars.push([name, at, at + change, change]);
    at += change;
  }
  bars.push([comparison.after, 0, comparison.after_us, null]);
  holder.replaceChildren();
  const width = chartWidth(holder), row = 25, labels = Math.min(330, width * 0.38);
  const x = scale([0, Math.max(...bars.map((bar) => Math.max(bar[1], bar[2]))) || 1], [labels, width - 92]);
  const svg = chart(holder, width, bars.length * row + 4, 'From one step to the other by its largest changes');
  const letters = Math.floor(labels / 7.2);
  bars.forEach(([name, from, until, change], i) => {
    const y = i * row + 3, left = Math.min(x(from), x(until)), right = Math.max(x(from), x(until));
    const fill = change === null ? '#4477aa' : change > 0 ? '#c9504a' : '#3d8f6a';
    const label = addShape(svg, 'text', {x: labels - 8, y: y + 14, 'text-anchor': 'end'}, name.length > letters ? name.slice(0, letters - 1) + '…' : name);
    addShape(label, 'title', {}, name);
    addShape(svg, 'rect', {x: left, y, height: row - 7, width: Math.max(1.5, right - left), fill, rx: 2});
    if (i + 1 < bars.length) addShape(svg, 'path', {class: 'axis', d: `M${x(until)},${y + row - 7}v7`, opacity: 0.6});
    addShape(svg, 'text', {x: right + 6, y: y + 14, class: 'soft'}, change === null ? time(until) : signed(change));
  });
}

function changeTable(comparison, table) {
  const rows = table.rows.map(([name, was, is, moved, countWas, countIs]) => [name, was, is, moved, moved / comparison.before_us, countWas, countIs]);
  return tableOf(`Changes by ${table.by}`, [{name: table.by, kind: 'text'}, {name: 'before', kind: 'us'}, {name: 'after', kind: 'us'}, {name: 'change', kind: 'change'},
    {name: 'of the step', kind: 'part'}, {name: 'kernels', kind: 'number'}, {name: 'kernels then', kind: 'number'}],
  rows, {file: 'changes', id: 'changes-table'});
}

function comparisonSection() {
  const {comparison} = data;
  if (!comparison) return;
  const made = section('changes', 'What changed', 'Each moment of a step belongs to one row: to the kernels that run, compute before collectives before copies; ' +
    'while the device is idle, to what the host does. So the rows add up to the difference of the two steps.' +
    (data.runs.some((run) => run.recorded) ? ' A profiler slows the host of the program that it records: the device is idle for longer than without it.' : ''));
  const bar = element('div', {class: 'bar', role: 'group', 'aria-label': 'Rows by'}), holder = element('div', {class: 'chart'});
  const below = element('div'), sum = element('p', {class: 'sum', id: 'changes-sum', role: 'status'});
  let shown = comparison.tables[1];
  const draw = () => {
    changeBars(comparison, shown.rows, holder);
    bar.querySelectorAll('button').forEach((button) => button.setAttribute('aria-pressed', String(button.textContent === shown.by)));
  };
  const choose = (table) => {
    shown = table;
    below.replaceChildren(changeTable(comparison, table));
    sum.textContent = `Sum of all ${number(table.rows.length, 0)} rows: ${signed(table.rows.reduce((total, row) => total + row[3], 0))}; ` +
      `the steps differ by ${signed(comparison.after_us - comparison.before_us)}.`;
    draw();
  };
  bar.append('Rows by', ...comparison.tables.map((table) => element('button', {type: 'button', 'aria-pressed': 'false', onclick: () => choose(table)}, table.by)));
  made.append(bar, holder, sum, below);
  choose(shown);
  addEventListener('resize', draw);
}
