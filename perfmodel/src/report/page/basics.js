// The data of the page and what all charts share. Times are microseconds; columns are decoded once.

const data = JSON.parse(document.getElementById('data').textContent);
const text = (index) => (index < 0 ? '' : data.names[index]);

// Integers of 0.01 us; starts are differences to the one before.
function decoded(column, differences) {
  const values = new Float64Array(column.length);
  let sum = 0;
  for (let i = 0; i < column.length; ++i) {
    sum = differences ? sum + column[i] : column[i];
    values[i] = sum / 100;
  }
  return values;
}

for (const run of data.runs) {
  for (const table of [run.ops, run.kernels]) {
    table.start = decoded(table.start, true);
    for (const key of ['time', 'host', 'wait', 'low', 'high', 'roofline']) {
      if (table[key]) table[key] = decoded(table[key], false);
    }
  }
}

// Elements and text; nothing that an input holds ever becomes markup.
function filled(made, properties, children) {
  for (const [key, value] of Object.entries(properties || {})) {
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
const element = (tag, properties, ...children) => filled(document.createElement(tag), properties, children);

// Puts an element of SVG into another one.
function addShape(parent, tag, properties, ...children) {
  const made = filled(document.createElementNS('http://www.w3.org/2000/svg', tag), properties, children);
  parent.append(made);
  return made;
}

// Words between backticks are code.
const withCode = (plain) => plain.split('`').map((part, i) => (i % 2 ? element('code', {}, part) : part));

function section(id, title, summary) {
  const made = element('section', {id, 'aria-labelledby': id + '-title'},
    element('h2', {id: id + '-title'}, title));
  if (summary) made.append(element('p', {class: 'soft'}, summary));
  document.getElementById('main').append(made);
  return made;
}

const number = (value, digits) =>
  value.toLocaleString('en-US', {minimumFractionDigits: digits, maximumFractionDigits: digits});
function time(us) {
  const size = Math.abs(us);
  if (size >= 1e6) return number(us / 1e6, 3) + ' s';
  if (size >= 1e3) return number(us / 1e3, 3) + ' ms';
  return number(us, size < 10 ? 2 : 1) + ' µs';
}
const percent = (share) => number(100 * share, 1) + ' %';
function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit + 1 < units.length) { value /= 1024; ++unit; }
  return number(value, unit ? 2 : 0) + ' ' + units[unit];
}

// Paul Tol's bright and light schemes: told apart with any colour vision.
const groups = [
  ['products', '#4477aa', ['gemm', 'grouped_gemm', 'experts', 'recurrent', 'linear_attention']],
  ['convolutions', '#66ccee', ['convolution', 'pooling']],
  ['attention', '#ee8866', ['attention', 'interaction']],
  ['pointwise', '#44bb99', ['elementwise', 'dropout', 'quantize']],
  ['reductions, norms', '#ddcc55', ['reduction', 'softmax', 'norm']],
  ['embeddings, indices', '#aa4499', ['embedding_forward', 'embedding_backward', 'index', 'sort']],
  ['optimizer', '#aaaa33', ['optimizer']],
  ['copies, layout', '#99aabb', ['copy', 'set', 'transpose', 'concat']],
  ['collectives', '#dd5566', ['collective']],
  ['other', '#bbbbbb', []],
];
const colourOf = new Map();
for (const [, colour, families] of groups) for (const family of families) colourOf.set(family, colour);
const familyColour = (family) => colourOf.get(family) || '#bbbbbb';
const hostColour = (isLabel) => (isLabel ? '#c9d3e0' : '#9fc1e8');

function legend(names) {
  const list = element('ul', {class: 'legend'});
  for (const [name, colour] of names) {
    const mark = element('i');
    mark.style.background = colour;
    list.append(element('li', {}, mark, name));
  }
  return list;
}
function legendOf(...runs) {
  const used = new Set(runs.flatMap((run) => [...new Set(run.kernels.family)].map((family) => familyColour(text(family)))));
  return legend(groups.filter(([, colour]) => used.has(colour)));
}

const hoverBox = document.getElementById('hover');
function hover(event, lines) {
  hoverBox.hidden = !lines;
  if (!lines) return;
  hoverBox.textContent = lines;
  const box = hoverBox.getBoundingClientRect();
  hoverBox.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + 'px';
  hoverBox.style.top = Math.max(4, Math.min(event.clientY + 16, innerHeight - box.height - 8)) + 'px';
}

function kernelLines(run, i) {
  const k = run.kernels, lines = [text(k.name[i])];
  const shape = text(k.shape[i]);
  lines.push(`${time(k.time[i])} from ${time(k.start[i])}, ${text(k.family[i])}, stream ${k.stream[i]}`);
  if (shape) lines.push(shape);
  if (k.high[i] > k.low[i]) lines.push(`range ${time(k.low[i])} to ${time(k.high[i])}`);
  if (k.roofline[i] > 0) lines.push(`${percent(k.roofline[i] / k.time[i])} of the roofline`);
  if (k.model[i] >= 0) lines.push(`bound ${text(k.bound[i])}, model ${text(k.model[i])}`);
  if (!k.ok[i]) lines.push('outside of the range that its model was checked on');
  lines.push(pathOf(run, k.op[i]));
  return lines.join('\n');
}
function opLines(run, i) {
  const o = run.ops;
  const lines = [text(o.name[i]), `${time(o.time[i])} from ${time(o.start[i])}, thread ${o.thread[i]}`,
    `own host time ${time(o.host[i])}` + (o.wait[i] > 0 ? `, waiting ${time(o.wait[i])}` : '')];
  if (o.parent[i] >= 0) lines.push('in ' + pathOf(run, o.parent[i]));
  return lines.join('\n');
}
function pathOf(run, op) {
  const names = [];
  for (; op >= 0 && names.length < 6; op = run.ops.parent[op]) names.unshift(text(run.ops.name[op]));
  return (op >= 0 ? '… / ' : '') + names.join(' / ');
}
