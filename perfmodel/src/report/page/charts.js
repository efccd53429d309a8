// Axes of the small SVG charts, with d3's scales.

function chart(holder, width, height, label) {
  return d3.select(holder).append('svg')
    .attr({viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label});
}

function drawAxes(svg, x, y, box, marks) {
  const [left, top, right, bottom] = box;
  for (const value of marks.x) {
    const at = x(value);
    svg.append('path').attr({class: 'grid', d: `M${at},${top}V${bottom}`});
    svg.append('text').attr({x: at, y: bottom + 16, 'text-anchor': 'middle', class: 'soft'}).text(marks.xText(value));
  }
  for (const value of marks.y) {
    const at = y(value);
    svg.append('path').attr({class: 'grid', d: `M${left},${at}H${right}`});
    svg.append('text').attr({x: left - 6, y: at + 4, 'text-anchor': 'end', class: 'soft'}).text(marks.yText(value));
  }
  svg.append('text').attr({x: (left + right) / 2, y: bottom + 34, 'text-anchor': 'middle'}).text(marks.xTitle);
  svg.append('text').attr({x: left, y: top - 8}).text(marks.yTitle);
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
