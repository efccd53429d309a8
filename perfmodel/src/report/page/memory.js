// Memory over time: stacked by purpose where it is predicted, one curve where it was recorded.

const purposeColours = ['#4477aa', '#66ccee', '#44bb99', '#ddcc55', '#ee8866', '#aa4499', '#aaaa33', '#99aabb'];

// Corners of a curve that keeps each height until the next moment.
const cornersOf = (at, height) => at.flatMap((x, i) => (i ? [[x, height[i - 1]], [x, height[i]]] : [[x, height[i]]]));

function memorySection(run) {
  const memory = run.memory;
  if (!memory || !memory.at.length) return;
  const totals = memory.at.map((_, i) => memory.series.reduce((sum, s) => sum + s.bytes[i], 0));
  const peak = totals.indexOf(Math.max(...totals));
  const parts = memory.series.map((s) => [s.name, s.bytes[peak]]).sort((a, b) => b[1] - a[1]).filter((p) => p[1] > 0);
  const made = section('memory', 'Memory',
    `At most ${bytes(totals[peak])} are allocated` +
    (memory.limit_bytes ? ` of the ${bytes(memory.limit_bytes)} that the GPU has` : '') +
    (memory.needed_bytes ? `; with what the allocator and the context hold ${bytes(memory.needed_bytes)}` : '') + '. ' +
    (parts.length > 1 ? 'At the peak: ' + parts.slice(0, 4).map(([n, b]) => `${n} ${bytes(b)}`).join(', ') + '.' : ''));
  const holder = element('div', {class: 'chart'});
  const colours = memory.series.map((s, i) => [s.name, purposeColours[i % purposeColours.length]]);
  made.append(holder, legend(colours));
  const draw = () => {
    holder.replaceChildren();
    const width = chartWidth(holder), height = Math.min(320, width * 0.55), box = [78, 26, width - 16, height - 44];
    const x = scale([memory.at[0], memory.at[memory.at.length - 1] || 1], [box[0], box[2]]);
    const near = memory.limit_bytes && memory.limit_bytes < 2 * totals[peak];
    const y = scale([0, 1.05 * Math.max(totals[peak], near ? memory.limit_bytes : 0)], [box[3], box[1]]);
    const svg = chart(holder, width, height, 'Memory over time');
    const base = memory.at.map(() => 0);
    // Round numbers of the unit that fits.
    const power = Math.max(0, Math.floor(Math.log(y.domain[1]) / Math.log(1024))), unit = Math.pow(1024, power);
    const marks = ticks([0, y.domain[1] / unit], 5).map((value) => value * unit);
    drawAxes(svg, x, y, box, {x: ticks(x.domain, 6), y: marks, xText: (v) => (memory.by_op ? number(v, 0) : time(v)), yText: (v) => String(Number((v / unit).toPrecision(4))),
      xTitle: memory.by_op ? 'node of the graph' : 'time', yTitle: ['B', 'KiB', 'MiB', 'GiB', 'TiB'][power]});
    memory.series.forEach((s, which) => {
      const below = cornersOf(memory.at.map(x), base.map(y));
      s.bytes.forEach((value, i) => { base[i] += value; });
      const above = cornersOf(memory.at.map(x), base.map(y));
      addShape(svg, 'path', {d: `M${above.concat(below.reverse()).join('L')}Z`, fill: colours[which][1], 'fill-opacity': 0.85});
    });
    if (near) {
      addShape(svg, 'path', {d: `M${box[0]},${y(memory.limit_bytes)}H${box[2]}`, stroke: 'var(--bad)', 'stroke-dasharray': '5 4'});
      addShape(svg, 'text', {x: box[2], y: y(memory.limit_bytes) - 4, 'text-anchor': 'end'}, 'what the GPU has');
    }
  };
  draw();
  addEventListener('resize', draw);
}
