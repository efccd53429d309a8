// Call paths as a flame graph (root at the bottom) or an icicle (root at the top), of one run or as
// the difference of two.

const metrics = {
  device: ['device time', (run, add) => {
    for (let i = 0; i < run.kernels.name.length; ++i) {
      add(run.kernels.op[i], text(run.kernels.name[i]), run.kernels.time[i], text(run.kernels.family[i]));
    }
  }],
  host: ['host time', (run, add) => {
    for (let i = 0; i < run.ops.name.length; ++i) add(i, null, run.ops.host[i]);
  }],
  wait: ['waiting of the host', (run, add) => {
    for (let i = 0; i < run.ops.name.length; ++i) add(i, null, run.ops.wait[i]);
  }],
  memory: ['device memory taken', (run, add) => {
    for (let i = 0; i < run.ops.name.length; ++i) add(i, null, run.ops.taken[i]);
  }],
};
const unitOf = (metric) => (metric === 'memory' ? bytes : time);
const isFrame = (run, op) => run.ops.label[op] === 2;
// Steps are one: their label is left out, an optimizer's loses its number.
const isStep = (name) => name.startsWith('ProfilerStep#');
const withoutNumber = (name) => name.replace(/^(Optimizer\.step)#\S*/, '$1');

// Adds a run's figures per step to a tree of names. `side`: 'a' or 'b'. Kernels of a prediction and of a recording
// have other names, but the same families. `python`: with calls of Python functions.
function addToTree(root, run, metric, side, byFamily, python) {
  const nodes = new Array(run.ops.name.length);
  const nodeOf = (op) => {
    if (op < 0) return root;
    if (nodes[op]) return nodes[op];
    const around = nodeOf(run.ops.parent[op]), name = text(run.ops.name[op]);
    return (nodes[op] = isStep(name) || (!python && isFrame(run, op)) ? around : child(around, withoutNumber(name)));
  };
  const child = (node, name) => {
    if (!node.byName.has(name)) node.byName.set(name, {name, byName: new Map(), a: 0, b: 0, selfA: 0, selfB: 0, parent: node});
    return node.byName.get(name);
  };
  const self = side === 'a' ? 'selfA' : 'selfB';
  metrics[metric][1](run, (op, name, us, family) => {
    const leaf = byFamily && family ? family : name;
    if (!(us > 0)) return;
    let node = nodeOf(op);
    if (leaf !== null) node = child(node, leaf);
    node[self] += us / run.steps;
    for (; node; node = node.parent) node[side] += us / run.steps;
  });
}

function flameTree(runA, runB, metric, python) {
  const root = {name: 'step', byName: new Map(), a: 0, b: 0, selfA: 0, selfB: 0, parent: null};
  const byFamily = runB && runA.recorded !== runB.recorded;
  addToTree(root, runA, metric, 'a', byFamily, python);
  if (runB) addToTree(root, runB, metric, 'b', byFamily, python);
  return root;
}

function flameSection(runs) {
  const made = section('flame', 'Call paths');
  const state = {metric: 'device', run: 0, other: runs.length > 1 ? 1 : -1, difference: false, icicle: true, python: true, root: null};
  const offered = Object.entries(metrics).filter(([key]) => key !== 'memory' || runs.some((run) => run.ops.taken.some((taken) => taken > 0)));
  const bar = element('div', {class: 'bar'}), said = element('p', {class: 'soft', role: 'status', id: 'flame-text'});
  const holder = element('div', {class: 'chart flame'});
  made.append(said, bar, holder);
  const choice = (label, values, start, set) => {
    const select = element('select', {'aria-label': label, onchange: () => { set(select.value); state.root = null; draw(); }});
    for (const [value, name] of values) select.append(element('option', {value, selected: String(value) === String(start)}, name));
    return element('label', {}, label + ' ', select);
  };
  const names = runs.map((run, i) => [i, run.name]);
  bar.append(choice('Show', offered.map(([key, [name]]) => [key, name]), state.metric, (value) => { state.metric = value; }));
  if (runs.length > 1) {
    bar.append(choice('of', names, 0, (value) => { state.run = Number(value); }));
    const toggle = element('button', {type: 'button', id: 'flame-difference', 'aria-pressed': 'false', onclick: () => {
      state.difference = !state.difference;
      toggle.setAttribute('aria-pressed', String(state.difference));
      state.root = null;
      draw();
    }}, 'Difference to');
    bar.append(toggle, choice('', names, 1, (value) => { state.other = Number(value); }));
  }
  if (runs.some((run) => run.ops.label.includes(2))) {
    const python = element('button', {type: 'button', id: 'flame-python', 'aria-pressed': 'true', onclick: () => {
      state.python = !state.python;
      python.setAttribute('aria-pressed', String(state.python));
      state.root = null;
      draw();
    }}, 'Python');
    bar.append(python);
  }
  const shape = element('button', {type: 'button', onclick: () => {
    state.icicle = !state.icicle;
    shape.textContent = state.icicle ? 'Flame graph' : 'Icicle';
    draw();
  }}, 'Flame graph');
  bar.append(shape, element('button', {type: 'button', onclick: () => { state.root = null; draw(); }}, 'Whole step'));

  function draw() {
    const runA = runs[state.run], runB = state.difference ? runs[state.other] : null;
    const tree = state.root || flameTree(runA, runB, state.metric, state.python);
    const shown = unitOf(state.metric);
    said.textContent = flameText(tree, runA, runB, metrics[state.metric][0], shown);
    holder.replaceChildren();
    const width = chartWidth(holder), row = 18;
    const value = (node) => Math.max(node.a, node.b);
    const boxes = [];
    const place = (node, x, wide, depth) => {
      if (wide < 1) return;
      boxes.push({node, x, wide, depth});
      const children = [...node.byName.values()].sort((p, q) => value(q) - value(p));
      const own = value(node), all = children.reduce((sum, c) => sum + value(c), 0);
      const scale = all > own && all > 0 ? own / all : 1;  // of differences, sides may not nest
      for (const c of children) {
        const part = own > 0 ? wide * value(c) * scale / own : 0;
        place(c, x, part, depth + 1);
        x += part;
      }
    };
    place(tree, 0, width, 0);
    const depths = Math.max(...boxes.map((box) => box.depth)) + 1;
    const svg = chart(holder, width, depths * row, 'Call paths by ' + metrics[state.metric][0]);
    const go = (box) => { state.root = box.node === state.root ? box.node.parent : box.node; hover(null, ''); draw(); };
    for (const box of boxes) {
      const lines = nodeLines(box.node, tree, runB, shown);
      const cell = addShape(svg, 'g', {transform: `translate(${box.x},${(state.icicle ? box.depth : depths - 1 - box.depth) * row})`});
      addShape(cell, 'rect', {height: row - 1, tabindex: 0, role: 'button', width: box.wide, 'aria-label': lines.replace(/\n/g, ', '),
        fill: runB ? changeColour(box.node) : nameColour(box.node.name), onclick: () => go(box),
        onkeydown: (event) => { if (event.key === 'Enter') go(box); }, onmousemove: (event) => hover(event, lines),
        onmouseleave: () => hover(null, '')});
      if (box.wide > 30) addShape(cell, 'text', {x: 3, y: 13}, box.node.name.slice(0, Math.floor((box.wide - 6) / 6)));
    }
  }
  draw();
  addEventListener('resize', () => draw());
}

// `shown`: a figure with its unit.
function nodeLines(node, tree, runB, shown) {
  const lines = [node.name];
  if (runB) {
    lines.push(`${shown(node.a)} and ${shown(node.b)}: ${node.b >= node.a ? '+' : '−'}${shown(Math.abs(node.b - node.a))}`);
  } else {
    lines.push(`${shown(node.a)} per step, ${percent(tree.a ? node.a / tree.a : 0)}; self ${shown(node.selfA)}`);
  }
  return lines.join('\n');
}

function flameText(tree, runA, runB, metric, shown) {
  const children = [...tree.byName.values()];
  if (runB) {
    const most = children.concat(...children.map((c) => [...c.byName.values()])).sort((p, q) => Math.abs(q.b - q.a) - Math.abs(p.b - p.a))[0];
    return `${metric} per step: ${shown(tree.a)} in ${runA.name}, ${shown(tree.b)} in ${runB.name}.` +
      (most ? ` Most of the change: ${most.name}, ${shown(most.a)} to ${shown(most.b)}.` : '') + ' Red takes more in the second, blue less.';
  }
  let node = tree, names = [];
  while (node.byName.size) {  // down where one child holds most of it
    const next = [...node.byName.values()].sort((p, q) => q.a - p.a)[0];
    if (next.a < 0.5 * node.a) break;
    names.push(next.name);
    node = next;
  }
  const largest = [...node.byName.values()].sort((p, q) => q.a - p.a).slice(0, 3);
  return `${metric} per step: ${shown(tree.a)}${names.length ? ', most of it in ' + names.slice(-3).join(' / ') : ''}.` +
    (largest.length ? ' There: ' + largest.map((c) => `${c.name} ${percent(tree.a ? c.a / tree.a : 0)}`).join(', ') + '.' : '') +
    ' Select a box to see it alone.';
}

// The same name has the same colour on every page.
function nameColour(name) {
  let hash = 0;
  for (let i = 0; i < name.length; ++i) hash = (hash * 31 + name.charCodeAt(i)) >>> 0;
  return `hsl(${20 + hash % 40} ${55 + (hash >> 6) % 25}% ${68 + (hash >> 11) % 12}%)`;
}
function changeColour(node) {
  const most = Math.max(node.a, node.b), change = most > 0 ? (node.b - node.a) / most : 0;
  const light = 88 - 38 * Math.min(1, Math.abs(change));
  return Math.abs(change) < 0.01 ? '#d5d8dc' : `hsl(${change > 0 ? 5 : 212} 70% ${light}%)`;
}
