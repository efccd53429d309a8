// The step as lanes on a canvas: host threads (nested), then streams. Only what is visible is drawn,
// and slices of less than half a pixel share one.

class Timeline {
  constructor(runs, holder) {
    this.runs = runs;
    this.rowHeight = 17;
    this.axisHeight = 24;
    this.found = '';
    this.showPath = true;
    this.chosen = null;
    this.lanes = runs.flatMap((run) => lanesOf(run, runs.length > 1));
    this.step = 0;
    this.end = Math.max(...runs.map((run) => run.span_us), 1);
    this.from = 0;
    this.until = this.end;
    this.canvas = element('canvas', {tabindex: 0, role: 'img',
      'aria-label': 'Timeline. Arrow keys move, plus and minus zoom, 0 shows all.'});
    holder.append(this.canvas);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
  }

  // Begins of the step of each run are drawn below each other.
  alignAt(step) {
    for (const lane of this.lanes) {
      const begins = lane.run.begins_us, moved = begins[Math.min(step, begins.length - 1)] - begins[Math.min(this.step, begins.length - 1)];
      lane.start = lane.start.map((us) => us - moved);
    }
    this.step = step;
    const of = (run) => run.begins_us.concat(run.span_us).map((us, i, all) => (i ? us - all[i - 1] : 0));
    this.show(0, Math.max(...this.runs.map((run) => of(run)[Math.min(step, run.steps - 1) + 1])));
  }

  get height() {
    return this.axisHeight + this.lanes.reduce((sum, lane) => sum + lane.rows * this.rowHeight + 6, 0);
  }
  get labelWidth() { return this.canvas.clientWidth < 560 ? 76 : this.runs.length > 1 ? 128 : 76; }
  get plotWidth() { return Math.max(50, this.canvas.clientWidth - this.labelWidth); }
  x(us) { return this.labelWidth + (us - this.from) / (this.until - this.from) * this.plotWidth; }
  at(x) { return this.from + (x - this.labelWidth) / this.plotWidth * (this.until - this.from); }

  show(from, until) {
    const least = 0.5, length = Math.min(this.end, Math.max(least, until - from));
    this.from = Math.max(0, Math.min(from, this.end - length));
    this.until = this.from + length;
    this.draw();
  }
  zoom(factor, around = (this.from + this.until) / 2) {
    this.show(around - (around - this.from) * factor, around + (this.until - around) * factor);
  }
  zoomTo(run, start, length) {
    const margin = Math.max(5, length * 2);
    this.show(start - margin, start + length + margin);
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener('wheel', (event) => {
      if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY) && !event.altKey && !this.focused) return;
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const moved = event.deltaX / this.plotWidth * (this.until - this.from);
        this.show(this.from + moved, this.until + moved);
      } else {
        this.zoom(Math.exp(event.deltaY * 0.002), this.at(event.offsetX));
      }
    }, {passive: false});
    canvas.addEventListener('focus', () => { this.focused = true; });
    canvas.addEventListener('blur', () => { this.focused = false; });
    let dragged = null;
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      canvas.focus({preventScroll: true});
      dragged = {x: event.offsetX, from: this.from, until: this.until, moved: false};
    });
    canvas.addEventListener('pointermove', (event) => {
      if (!dragged) return this.hoverAt(event);
      const moved = (dragged.x - event.offsetX) / this.plotWidth * (dragged.until - dragged.from);
      dragged.moved = dragged.moved || Math.abs(dragged.x - event.offsetX) > 3;
      if (dragged.moved) this.show(dragged.from + moved, dragged.until + moved);
    });
    canvas.addEventListener('pointerup', (event) => {
      if (dragged && !dragged.moved) {
        this.chosen = this.sliceAt(event.offsetX, event.offsetY);
        this.draw();
      }
      dragged = null;
    });
    canvas.addEventListener('pointerleave', () => hover(null, ''));
    canvas.addEventListener('dblclick', (event) => {
      const slice = this.sliceAt(event.offsetX, event.offsetY);
      if (slice) this.zoomTo(slice.lane.run, slice.lane.start[slice.i], slice.lane.time[slice.i]);
    });
    canvas.addEventListener('keydown', (event) => {
      const step = (this.until - this.from) / 6;
      const keys = {
        ArrowLeft: () => this.show(this.from - step, this.until - step),
        ArrowRight: () => this.show(this.from + step, this.until + step),
        '+': () => this.zoom(0.5), '=': () => this.zoom(0.5), '-': () => this.zoom(2),
        0: () => this.show(0, this.end),
      };
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  sliceAt(x, y) {
    if (x < this.labelWidth) return null;
    let top = this.axisHeight;
    for (const lane of this.lanes) {
      const height = lane.rows * this.rowHeight;
      if (y >= top && y < top + height) {
        const row = lane.order[Math.floor((y - top) / this.rowHeight)];
        const at = this.at(x), slack = (this.until - this.from) / this.plotWidth;
        for (let place = lastBefore(lane, row, at + slack); place >= 0 && place > row.length - 1e9; --place) {
          const i = row[place];
          if (lane.start[i] + lane.time[i] >= at - slack) return {lane, i};
          if (lane.start[i] < at - lane.longest) break;
        }
        return null;
      }
      top += height + 6;
    }
    return null;
  }
  hoverAt(event) {
    const slice = this.sliceAt(event.offsetX, event.offsetY);
    hover(event, slice ? slice.lane.lines(slice.i) : '');
  }

  draw() {
    const canvas = this.canvas, ratio = devicePixelRatio || 1;
    canvas.style.height = this.height + 'px';
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(this.height * ratio);
    const pen = canvas.getContext('2d');
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    this.colours = {ink: colour('--ink'), soft: colour('--soft'), line: colour('--line'), path: colour('--path'), card: colour('--card')};
    pen.scale(ratio, ratio);
    pen.clearRect(0, 0, canvas.clientWidth, this.height);
    pen.font = '11px system-ui, sans-serif';
    this.drawAxis(pen);
    let top = this.axisHeight;
    for (const lane of this.lanes) {
      this.drawLane(pen, lane, top);
      top += lane.rows * this.rowHeight + 6;
    }
  }

  drawAxis(pen) {
    const place = scale([this.from, this.until], [this.labelWidth, this.labelWidth + this.plotWidth]);
    pen.strokeStyle = this.colours.line;
    pen.fillStyle = this.colours.soft;
    pen.textAlign = 'center';
    for (const tick of ticks(place.domain, Math.max(2, this.plotWidth / 130))) {
      const x = Math.round(place(tick)) + 0.5;
      pen.beginPath();
      pen.moveTo(x, 18);
      pen.lineTo(x, this.height);
      pen.stroke();
      pen.fillText(time(tick), x, 12);
    }
  }

  drawLane(pen, lane, top) {
    pen.textAlign = 'left';
    pen.fillStyle = this.colours.soft;
    pen.save();
    pen.beginPath();
    pen.rect(0, top, this.labelWidth - 6, Math.max(this.rowHeight, lane.rows * this.rowHeight));
    pen.clip();
    // On phones "rank 0 t1".
    pen.fillText(this.canvas.clientWidth < 560 ? lane.title.replace(/(thread|stream) /, (word) => word[0]) : lane.title, 2, top + 12);
    pen.restore();
    pen.save();
    pen.beginPath();
    pen.rect(this.labelWidth, top, this.plotWidth, lane.rows * this.rowHeight);
    pen.clip();
    lane.order.forEach((row, depth) => this.drawRow(pen, lane, row, top + depth * this.rowHeight));
    pen.restore();
  }

  drawRow(pen, lane, row, y) {
    const first = Math.max(0, lastBefore(lane, row, this.from - lane.longest));
    const height = this.rowHeight - 2;
    let drawnTo = -1;
    for (let place = first; place < row.length; ++place) {
      const i = row[place];
      if (lane.start[i] > this.until) break;
      const x = this.x(lane.start[i]), wide = this.x(lane.start[i] + lane.time[i]) - x;
      if (x + wide < this.labelWidth) continue;
      const found = this.found && lane.name(i).toLowerCase().includes(this.found);
      const marked = this.showPath && lane.onPath.has(i);
      if (x + wide < drawnTo + 0.5 && !found && !marked) continue;
      drawnTo = x + Math.max(wide, 0.5);
      pen.globalAlpha = this.found && !found ? 0.18 : 1;
      pen.fillStyle = lane.colour(i);
      pen.fillRect(x, y, Math.max(wide - (wide > 3 ? 0.5 : 0), 0.7), height);
      if (!lane.ok(i) && wide > 4) hatch(pen, x, y, wide, height);
      if (marked) {
        pen.fillStyle = this.colours.path;
        pen.fillRect(x, y + height - 3, Math.max(wide, 1), 3);
      }
      if (found || (this.chosen && this.chosen.lane === lane && this.chosen.i === i)) {
        pen.strokeStyle = this.colours.ink;
        pen.strokeRect(x + 0.5, y + 0.5, Math.max(wide - 1, 1), height - 1);
      }
      if (wide > 34) {
        pen.fillStyle = '#14171b';
        const from = Math.max(x, this.labelWidth);
        pen.save();
        pen.beginPath();
        pen.rect(from, y, x + wide - from - 3, height);
        pen.clip();
        pen.fillText(lane.name(i), from + 3, y + 11);
        pen.restore();
      }
    }
    pen.globalAlpha = 1;
  }

  // Shows slices whose name holds the words; the number of them.
  search(words) {
    this.found = words.trim().toLowerCase();
    this.hits = [];
    if (this.found) {
      for (const lane of this.lanes) {
        for (const row of lane.order) {
          for (const i of row) if (lane.name(i).toLowerCase().includes(this.found)) this.hits.push({lane, i});
        }
      }
      this.hits.sort((a, b) => a.lane.start[a.i] - b.lane.start[b.i]);
    }
    this.hit = -1;
    this.draw();
    return this.hits.length;
  }
  nextHit() {
    if (!this.hits || !this.hits.length) return;
    this.hit = (this.hit + 1) % this.hits.length;
    const {lane, i} = this.chosen = this.hits[this.hit];
    this.zoomTo(lane.run, lane.start[i], lane.time[i]);
  }
}

// Place of the last slice of a row that starts at or before a time; -1: none.
function lastBefore(lane, row, at) {
  let low = 0, high = row.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane.start[row[middle]] <= at) low = middle + 1; else high = middle;
  }
  return low - 1;
}

function hatch(pen, x, y, wide, height) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, wide, height);
  pen.clip();
  pen.strokeStyle = 'rgb(0 0 0 / 45%)';
  pen.beginPath();
  const from = Math.max(x, 0) - height, until = Math.min(x + wide, 4000);
  for (let at = from; at < until; at += 6) {
    pen.moveTo(at, y + height);
    pen.lineTo(at + height, y);
  }
  pen.stroke();
  pen.restore();
}

// Threads by nesting, streams by overlap; indices into the run's columns.
function lanesOf(run, several) {
  const lanes = [], {ops, kernels} = run;
  const pathOps = new Set(run.path.ops), pathKernels = new Set(run.path.kernels);
  const who = several ? (data.comparison ? data.comparison.sides[data.runs.indexOf(run)] : run.name) + ' ' : '';
  const add = (table, members, title, more) => {
    members.sort((a, b) => table.start[a] - table.start[b] || table.time[b] - table.time[a]);
    const order = [], ends = [];
    let longest = 0;
    for (const i of members) {
      let row = 0;
      while (row < ends.length && ends[row] > table.start[i] + 1e-6) ++row;
      if (row === ends.length) { ends.push(0); order.push([]); }
      order[row].push(i);
      ends[row] = table.start[i] + table.time[i];
      longest = Math.max(longest, table.time[i]);
    }
    lanes.push({run, title, start: table.start, time: table.time, order, rows: order.length, longest,
      name: (i) => text(table.name[i]), ...more});
  };
  const byKey = (column) => {
    const made = new Map();
    for (let i = 0; i < column.length; ++i) {
      if (!made.has(column[i])) made.set(column[i], []);
      made.get(column[i]).push(i);
    }
    return [...made].sort((a, b) => a[0] - b[0]);
  };
  for (const [thread, all] of byKey(ops.thread)) {
    const members = all.filter((i) => !isFrame(run, i));  // calls of Python are in the call paths
    add(ops, members, `${who}thread ${thread}`, {onPath: pathOps, ok: () => true,
      colour: (i) => hostColour(ops.label[i]), lines: (i) => opLines(run, i)});
  }
  for (const [stream, members] of byKey(kernels.stream)) {
    add(kernels, members, `${who}stream ${stream}`, {onPath: pathKernels, ok: (i) => kernels.ok[i],
      colour: (i) => familyColour(text(kernels.family[i])), lines: (i) => kernelLines(run, i)});
  }
  return lanes;
}

// Chooses the step at whose begin both runs are aligned; no element: all have one.
function stepChoice(runs, timeline) {
  const steps = Math.max(...runs.map((run) => run.begins_us.length));
  if (!data.comparison || steps < 2) return '';
  const select = element('select', {id: 'timeline-step', 'aria-label': 'Align at step', onchange: () => timeline.alignAt(Number(select.value))});
  for (let i = 0; i < steps; ++i) select.append(element('option', {value: i}, `step ${i + 1}`));
  return element('label', {}, 'Align at ', select);
}

function timelineSection(runs) {
  const shown = runs.reduce((sum, run) => sum + run.ops.label.filter((kind) => kind !== 2).length + run.kernels.name.length, 0);
  const left = runs.reduce((sum, run) => sum + run.left_out, 0);
  const made = section('timeline', 'Timeline',
    `${number(shown, 0)} slices: host threads above, streams of the device below. ` +
    (left ? `${number(left, 0)} of the shortest slices are left out of the picture (not out of any sum). ` : '') +
    'Drag to move; Ctrl and wheel (or wheel when the chart has the focus), + and - zoom; double-click zooms to a slice. ' +
    'A red foot marks the critical path, hatching a kernel outside of the range that its model was checked on.');
  const search = element('input', {type: 'search', placeholder: 'aten::linear', 'aria-label': 'Search names in the timeline', id: 'timeline-search'});
  const count = element('span', {class: 'soft', id: 'timeline-count', role: 'status'});
  const bar = element('div', {class: 'bar'});
  const holder = element('div', {class: 'chart'});
  made.append(bar, holder);
  const timeline = new Timeline(runs, holder);
  search.addEventListener('input', () => {
    const hits = timeline.search(search.value);
    count.textContent = search.value ? `${number(hits, 0)} found` + (hits ? ', Enter goes through them' : '') : '';
  });
  search.addEventListener('keydown', (event) => { if (event.key === 'Enter') timeline.nextHit(); });
  const press = (label, title, act) => element('button', {type: 'button', title, onclick: act}, label);
  const path = element('button', {type: 'button', 'aria-pressed': 'true', onclick: () => {
    timeline.showPath = !timeline.showPath;
    path.setAttribute('aria-pressed', String(timeline.showPath));
    timeline.draw();
  }}, 'Critical path');
  bar.append(search, press('+', 'Zoom in', () => timeline.zoom(0.5)), press('−', 'Zoom out', () => timeline.zoom(2)),
    press('All', 'Show the whole step', () => timeline.show(0, timeline.end)), path, stepChoice(runs, timeline), count);
  made.append(legendOf(...runs));
  timeline.draw();
  return timeline;
}
