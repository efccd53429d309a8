// Tables that sort, filter and go to the clipboard as CSV. A column: {name, kind}, kind one of text,
// us, change (of a time), share, part (a signed share), count, bytes, number.

const cellText = {
  text: (value) => String(value ?? ''), us: (value) => (value === null ? '' : time(value)), share: (value) => (value === null ? '' : percent(value)),
  change: (value) => signed(value), part: (value) => signedPercent(value),
  count: (value) => (value === null ? '' : number(value, 0)), bytes: (value) => (value === null ? '' : bytes(value)),
  number: (value) => (value === null ? '' : typeof value !== 'number' ? String(value)
    : number(value, Number.isInteger(value) ? 0 : Math.abs(value) < 100 ? 3 : 1)),
};
const csvCell = (value) => {
  const plain = String(value ?? '');
  return /[",\n]/.test(plain) ? `"${plain.replace(/"/g, '""')}"` : plain;
};

function tableOf(title, columns, rows, options = {}) {
  const shownAtFirst = 100;
  const state = {column: options.sort ?? -1, down: true, words: '', all: false};
  const body = element('tbody'), more = element('p', {class: 'more'});
  const head = element('tr');
  const filter = element('input', {type: 'search', placeholder: 'filter', 'aria-label': `Filter ${title}`,
    oninput: () => { state.words = filter.value.trim().toLowerCase(); draw(); }});
  const asCsv = () => [columns.map((c) => c.name), ...chosen()].map((row) => row.map(csvCell).join(',')).join('\n') + '\n';
  const copy = element('button', {type: 'button', onclick: async () => {
    try {
      await navigator.clipboard.writeText(asCsv());
      copy.textContent = 'Copied';
    } catch {  // pages opened from files may not
      const link = element('a', {href: 'data:text/csv;charset=utf-8,' + encodeURIComponent(asCsv()), download: `${options.file || 'table'}.csv`});
      link.click();
      copy.textContent = 'Saved';
    }
    setTimeout(() => { copy.textContent = 'Copy as CSV'; }, 1500);
  }}, 'Copy as CSV');
  const headers = columns.map((column, at) => {
    const button = element('button', {type: 'button', onclick: () => {
      state.down = state.column === at ? !state.down : column.kind !== 'text';
      state.column = at;
      draw();
    }}, column.name);
    const cell = element('th', {scope: 'col', class: column.kind === 'text' ? 'text' : ''}, button);
    head.append(cell);
    return cell;
  });
  function chosen() {
    let some = rows;
    if (state.words) some = some.filter((row) => row.some((value) => typeof value === 'string' && value.toLowerCase().includes(state.words)));
    if (state.column >= 0) {
      const at = state.column, sign = state.down ? -1 : 1;
      some = [...some].sort((a, b) => {
        if (a[at] === null || b[at] === null) return (a[at] === null) - (b[at] === null);
        return sign * (a[at] < b[at] ? -1 : a[at] > b[at] ? 1 : 0);
      });
    }
    return some;
  }
  function draw() {
    headers.forEach((cell, at) => cell.setAttribute('aria-sort', at !== state.column ? 'none' : state.down ? 'descending' : 'ascending'));
    headers.forEach((cell, at) => { cell.firstChild.textContent = columns[at].name + (at !== state.column ? '' : state.down ? ' ▾' : ' ▴'); });
    const some = chosen(), shown = state.all ? some : some.slice(0, shownAtFirst);
    body.replaceChildren(...shown.map((row) => element('tr', {}, ...columns.map((column, at) => {
      const grows = column.kind === 'change' && row[at] > 0, shrinks = column.kind === 'change' && row[at] < 0;
      const cell = element('td', {class: column.kind === 'text' ? 'text' : grows ? 'grows' : shrinks ? 'shrinks' : ''});
      if ((column.kind === 'share' || column.kind === 'part') && typeof row[at] === 'number') {
        const spark = element('span', {class: 'spark', 'aria-hidden': 'true'});
        spark.style.width = Math.min(1, Math.abs(row[at])) * 5 + 'rem';
        cell.append(spark);
      }
      const shown = cellText[column.kind](row[at]);
      if (shown.length > 96) cell.title = shown;
      cell.append(shown.length > 96 ? shown.slice(0, 95) + '…' : shown);
      return cell;
    }))));
    more.replaceChildren();
    if (some.length > shown.length) {
      more.append(`${number(shown.length, 0)} of ${number(some.length, 0)} rows. `,
        element('button', {type: 'button', onclick: () => { state.all = true; draw(); }}, 'Show all'));
    } else if (state.words) {
      more.append(`${number(some.length, 0)} of ${number(rows.length, 0)} rows.`);
    }
  }
  draw();
  return element('div', {}, element('div', {class: 'bar'}, filter, copy),
    element('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': title},
      element('table', {id: options.id}, element('caption', {class: 'skip'}, title), element('thead', {}, head), body)), more);
}

function totalsSections(run) {
  const ops = section('ops', 'Ops', `${number(run.totals.ops.length, 0)} names; figures are per step. Self: without the ops inside.`);
  ops.append(tableOf('Ops', [
    {name: 'op', kind: 'text'}, {name: 'count', kind: 'number'}, {name: 'host self', kind: 'us'}, {name: 'waiting', kind: 'us'},
    {name: 'device self', kind: 'us'}, {name: 'of device', kind: 'share'}],
  run.totals.ops, {sort: 4, file: 'ops', id: 'ops-table'}));
  const kernels = section('kernels', 'Kernels', `${number(run.totals.kernels.length, 0)} names, ${time(run.kernel_sum_us)} together per step.`);
  kernels.append(tableOf('Kernels', [
    {name: 'kernel', kind: 'text'}, {name: 'family', kind: 'text'}, {name: 'count', kind: 'number'}, {name: 'time', kind: 'us'},
    {name: 'mean', kind: 'us'}, {name: 'of roofline', kind: 'share'}, {name: 'of device', kind: 'share'}],
  run.totals.kernels, {sort: 3, file: 'kernels', id: 'kernels-table'}));
}
