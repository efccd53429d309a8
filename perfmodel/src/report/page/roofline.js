// Kernels under the peaks of the GPU, on log axes. One mark per name and shape.

function rooflineSection(run) {
  const k = run.kernels, marks = new Map();
  let judged = 0, all = 0;
  for (let i = 0; i < k.name.length; ++i) {
    all += k.time[i];
    if (!(k.flop[i] > 0) || !(k.bytes[i] > 0) || !(k.time[i] > 0)) continue;
    judged += k.time[i];
    const key = `${k.name[i]} ${k.shape[i]}`;
    if (!marks.has(key)) marks.set(key, {i, time: 0, flop: 0, bytes: 0, count: 0});
    const mark = marks.get(key);
    mark.time += k.time[i];
    mark.flop += k.flop[i];
    mark.bytes += k.bytes[i];
    ++mark.count;
  }
  if (!marks.size || !run.peaks.length) return;
  const points = [...marks.values()].map((mark) => ({...mark, intensity: mark.flop / mark.bytes, rate: mark.flop / mark.time * 1e6}))
    .sort((a, b) => b.time - a.time);
  const nameOf = (p) => text(k.name[p.i]).slice(0, 60);
  const lowest = points.filter((p) => k.roofline[p.i] > 0)
    .map((p) => ({p, share: k.roofline[p.i] / k.time[p.i]})).sort((a, b) => a.share - b.share);
  const heavy = lowest.filter(({p}) => p.time > 0.02 * all)[0];
  const made = section('roofline', 'Roofline',
    `${number(points.length, 0)} kinds of kernels with known work, ${percent(judged / all)} of the device's time. ` +
    `The largest, ${nameOf(points[0])}, does ${shortNumber(points[0].rate)}FLOP/s at ${number(points[0].intensity, 1)} FLOP per byte.` +
    (heavy ? ` Furthest below its peak among those above 2 %: ${nameOf(heavy.p)}, ${percent(heavy.share)}.` : '') +
    ' Areas of marks are time; hollow marks lie outside of the range that their model was checked on.');
  const holder = element('div', {class: 'chart'});
  made.append(holder, legendOf(run));
  const draw = () => {
    holder.replaceChildren();
    const width = chartWidth(holder), height = Math.min(430, width * 0.62), box = [64, 26, width - 16, height - 44];
    const most = Math.max(...run.peaks.map((peak) => peak.flop_per_s), ...points.map((p) => p.rate));
    const ridge = most / run.dram_bytes_per_s;
    const xs = points.map((p) => p.intensity), ys = points.map((p) => p.rate);
    const x = logScale([Math.min(...xs, 1) / 2, Math.max(...xs, ridge) * 2], [box[0], box[2]]);
    const y = logScale([Math.max(Math.min(...ys) / 2, most / 1e7), most * 2], [box[3], box[1]]);
    const svg = chart(holder, width, height, 'Roofline of kernels');
    drawAxes(svg, x, y, box, {x: decades(x.domain), y: decades(y.domain), xText: shortNumber, yText: (v) => shortNumber(v),
      xTitle: 'FLOP per byte', yTitle: 'FLOP/s'});
    const slope = run.dram_bytes_per_s, [x0, x1] = x.domain, floor = y.domain[0];
    const low = Math.max(x0, floor / slope);
    addShape(svg, 'path', {class: 'axis', d: `M${x(low)},${y(low * slope)}L${x(ridge)},${y(most)}`});
    for (const peak of run.peaks) {
      const from = Math.max(peak.flop_per_s / slope, x0);
      addShape(svg, 'path', {class: 'axis', d: `M${x(from)},${y(peak.flop_per_s)}H${x(x1)}`});
      addShape(svg, 'text', {x: box[2], y: y(peak.flop_per_s) - 4, 'text-anchor': 'end', class: 'soft'}, peak.name);
    }
    const area = rootScale([0, points[0].time], [2.5, 15]);
    for (const p of points) {
      const colour = familyColour(text(k.family[p.i]));
      const said = `${number(p.count, 0)} times, ${time(p.time)} together\n${shortNumber(p.rate)}FLOP/s, ${number(p.intensity, 2)} FLOP per byte\n`;
      addShape(svg, 'circle', {cx: x(p.intensity), cy: y(Math.max(p.rate, floor)), r: area(p.time), fill: k.ok[p.i] ? colour : 'none', stroke: colour,
        'fill-opacity': 0.7, 'stroke-width': 1.5, onmousemove: (event) => hover(event, said + kernelLines(run, p.i)), onmouseleave: () => hover(null, '')});
    }
  };
  draw();
  addEventListener('resize', draw);
}
