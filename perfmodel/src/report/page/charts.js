// Scales and axes of the small SVG charts.

// From a range of figures to a range of pixels, evenly in `bent(figure)`.
function scale(domain, range, bent = (value) => value) {
  const [low, high] = domain.map(bent);
  const at = (value) => {
    const share = (bent(value) - low) / (high - low || 1);
    return range[0] * (1 - share) + range[1] * share;
  };
  return Object.assign(at, {domain});
}
const logScale = (domain, range) => scale(domain, range, Math.log10);
const rootScale = (domain, range) => scale(domain, range, Math.sqrt);

// About `count` round figures of a range: one, two or five times a power of ten apart.
function ticks([low, high], count) {
  const power = Math.floor(Math.log10((high - low) / count)), wish = (high - low) / count / 10 ** power;
  const times = wish > 6.7 ? 10 : wish > 2.9 ? 5 : wish > 1.33 ? 2 : 1;
  const made = [];
  // Divided, not multiplied by a part of one: 0.3 is 3 / 10.
  const figure = (i) => (power < 0 ? i * times / 10 ** -power : i * times * 10 ** power);
  for (let i = Math.ceil(low / figure(1)); figure(i) <= high; ++i) made.push(figure(i));
  return made;
}

function chart(holder, width, height, label) {
  return addShape(holder, 'svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label});
}

function drawAxes(svg, x, y, box, marks) {
  const [left, top, right, bottom] = box;
  for (const value of marks.x) {
    const at = x(value);
    addShape(svg, 'path', {class: 'grid', d: `M${at},${top}V${bottom}`});
    addShape(svg, 'text', {x: at, y: bottom + 16, 'text-anchor': 'middle', class: 'soft'}, marks.xText(value));
  }
  for (const value of marks.y) {
    const at = y(value);
    addShape(svg, 'path', {class: 'grid', d: `M${left},${at}H${right}`});
    addShape(svg, 'text', {x: left - 6, y: at + 4, 'text-anchor': 'end', class: 'soft'}, marks.yText(value));
  }
  addShape(svg, 'text', {x: (left + right) / 2, y: bottom + 34, 'text-anchor': 'middle'}, marks.xTitle);
  addShape(svg, 'text', {x: left, y: top - 8}, marks.yTitle);
}

// Powers of ten within a range.
function decades([low, high]) {
  const made = [];
  for (let power = Math.ceil(Math.log10(low) - 1e-9); Math.pow(10, power) <= high * 1.0001; ++power) made.push(Math.pow(10, power));
  return made;
}
const shortNumber = (value) => {
  for (const [size, unit] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) {
    if (value >= size) return number(value / size, 0) + ' ' + unit;
  }
  return value >= 1 ? number(value, 0) : String(Number(value.toPrecision(1)));
};

const chartWidth = (holder) => Math.max(320, Math.min(1200, holder.clientWidth || 900));
