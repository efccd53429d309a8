// Puts the page together.

function headline() {
  const top = document.getElementById('top');
  document.title = data.title;
  const inputs = data.inputs.join(', ');
  top.append(element('h1', {}, data.title), inputs === data.title ? '' : element('p', {class: 'soft'}, inputs));
  const run = data.runs[0];
  if (data.comparison) {
    const {before, after, before_us, after_us} = data.comparison;
    top.append(element('p', {class: 'lead'}, comparisonSentence(data.comparison)), element('ul', {class: 'figures'},
      ...[[before, time(before_us)], [after, time(after_us)], ['change per step', signed(after_us - before_us)], ['times as fast', number(before_us / after_us, 2)]]
        .map(([name, value]) => element('li', {}, element('b', {}, value), element('span', {}, name)))));
  } else if (run) {
    if (run.limit) top.append(element('p', {class: 'lead'}, run.limit));
    const figures = element('ul', {class: 'figures'});
    for (const [name, value] of run.facts) figures.append(element('li', {}, element('b', {}, value), element('span', {}, name)));
    top.append(figures);
  }
  const warnings = [...new Set(data.runs.flatMap((r) => r.warnings).concat(data.warnings))];
  if (warnings.length) {
    const list = element('ul', {class: 'warnings', 'aria-label': 'Warnings'});
    warnings.slice(0, 6).forEach((warning) => list.append(element('li', {}, warning)));
    if (warnings.length > 6) {
      const rest = element('details', {}, element('summary', {}, `${warnings.length - 6} more`));
      const more = element('ul', {});
      warnings.slice(6).forEach((warning) => more.append(element('li', {}, warning)));
      rest.append(more);
      list.append(element('li', {}, rest));
    }
    top.append(list);
  }
}

function navigation() {
  const nav = element('nav', {'aria-label': 'Sections'});
  for (const part of document.querySelectorAll('main > section')) {
    nav.append(element('a', {href: '#' + part.id}, part.querySelector('h2').textContent));
  }
  document.getElementById('top').after(nav);
}

const places = new Set(['memory-limit', 'step-gaps', 'straggler']);  // whose place is no slice

function findingsSection(run, timeline, at) {
  const shown = run.findings.filter((finding) => !finding.folded), folded = run.findings.length - shown.length;
  const made = section('findings' + (at || ''), data.comparison && data.runs.length > 1 ? 'Findings ' + data.comparison.sides[at] : 'Findings',
    shown.length ? 'What is wrong, by what repairing it gains: the step scheduled again with that repair alone. Gains do not add up.'
      : 'No rule finds anything that gains 2 % of the step.');
  const list = element('ol', {class: 'findings'});
  for (const finding of shown) {
    const gain = element('div', {class: 'gain'}, finding.gain_us === null ? '–' : percent(finding.gain_share),
      element('small', {}, finding.gain_us === null ? 'costs no time' : time(finding.gain_us)));
    const last = finding.where.split(' / ').pop();
    list.append(element('li', {}, gain, element('div', {},
      element('b', {}, finding.title), element('div', {class: 'where'}, finding.where),
      element('div', {}, ...withCode(finding.advice)),
      element('div', {class: 'soft'}, `${finding.rule}, takes ${percent(finding.share)} itself, confidence ${finding.confidence} `,
        places.has(finding.rule) ? null : element('button', {type: 'button', onclick: () => showInTimeline(timeline, last)}, 'Show')))));
  }
  made.append(list);
  if (folded) made.append(element('p', {class: 'more'}, `${folded} more gain less than 2 % each: ` +
    [...new Set(run.findings.filter((f) => f.folded).map((f) => f.rule))].join(', ') + '.'));
  return made;
}

function showInTimeline(timeline, words) {
  const box = document.getElementById('timeline-search');
  box.value = words;
  box.dispatchEvent(new Event('input'));
  timeline.nextHit();
  document.getElementById('timeline').scrollIntoView();
}

function pathSection(run, timeline) {
  const order = run.path.rows.map(([side, name, us, count]) => ({side, name, us, count}));
  if (!order.length) return;
  const sum = order.reduce((total, row) => total + row.us, 0);
  const host = order.filter((row) => row.side === 'host').reduce((total, row) => total + row.us, 0);
  const made = section('path', 'Critical path',
    `What the step waits for: ${percent(sum ? host / sum : 0)} of it is host work, ${percent(sum ? 1 - host / sum : 0)} device work. ` +
    'Gaps before a piece count to it. Select a row to see it in the timeline.');
  const list = element('ol', {class: 'path'});
  for (const row of order.slice(0, 60)) {
    list.append(element('li', {}, element('button', {type: 'button', onclick: () => showInTimeline(timeline, row.name)},
      element('span', {}, time(row.us / run.steps)), element('span', {}, percent(sum ? row.us / sum : 0)),
      element('span', {}, `${row.name}${row.count > 1 ? ' × ' + number(row.count, 0) : ''} `, element('span', {class: 'soft'}, row.side)))));
  }
  made.append(list);
}

// Runs beside each other: ranks, or a prediction and what was measured.
function runsSection() {
  if (data.runs.length < 2) return;
  const first = data.runs[0];
  const slowest = [...data.runs].sort((a, b) => b.step_us - a.step_us)[0];
  const made = section('runs', data.relation === 'against' ? 'Predicted and measured' : 'Runs beside each other',
    data.relation === 'against'
      ? `Predicted ${time(first.step_us)}, measured ${time(data.runs[1].step_us)}: ${percent(first.step_us / data.runs[1].step_us - 1)}.`
      : `The longest step is that of ${slowest.name}, ${time(slowest.step_us)}.`);
  made.append(tableOf('Runs', [{name: 'run', kind: 'text'}, {name: 'step', kind: 'us'}, {name: 'device busy', kind: 'us'}, {name: 'host waiting', kind: 'us'},
    {name: 'kernels', kind: 'us'}, {name: 'collectives', kind: 'us'}, {name: 'busy', kind: 'share'}],
  data.runs.map((run) => [run.name, run.step_us, run.active_us, run.wait_us, run.kernel_sum_us, run.collective_us, run.active_us / run.step_us]),
  {file: 'runs', id: 'runs-table'}));
}

// A document of another command: bars of its figure of merit, then the table.
function documentSection(document_, at) {
  const made = section('document-' + at, document_.title, document_.summary);
  const bars = document_.bars;
  if (bars && bars.rows.length) {
    const holder = element('div', {class: 'chart'}), row = 24, shown = bars.rows.slice(0, 25);
    made.append(holder);
    const draw = () => {
      holder.replaceChildren();
      const width = chartWidth(holder), labels = Math.min(320, width * 0.4);
      const most = Math.max(...shown.map((r) => Math.max(r.value, r.high ?? 0)));
      const x = scale([0, most || 1], [labels, width - 90]);
      const svg = chart(holder, width, shown.length * row + 6, bars.title);
      shown.forEach((r, i) => {
        const y = i * row + 4;
        addShape(svg, 'text', {x: labels - 8, y: y + 13, 'text-anchor': 'end'}, r.name.length > labels / 7.2 ? r.name.slice(0, Math.floor(labels / 7.2) - 1) + '…' : r.name);
        addShape(svg, 'rect', {x: labels, y, height: row - 7, width: Math.max(1, x(r.value) - labels), fill: r.bad ? '#bbbbbb' : '#4477aa', rx: 2});
        if (r.high > r.low) addShape(svg, 'path', {class: 'axis', d: `M${x(r.low)},${y + 8}H${x(r.high)}M${x(r.low)},${y + 4}v8M${x(r.high)},${y + 4}v8`});
        addShape(svg, 'text', {x: Math.max(x(r.value), r.high ? x(r.high) : 0) + 6, y: y + 13, class: 'soft'}, cellText[bars.kind](r.value));
      });
    };
    draw();
    addEventListener('resize', draw);
  }
  document_.tables.forEach((table, which) => {
    if (document_.tables.length > 1) made.append(element('h3', {}, table.title));
    made.append(tableOf(table.title, table.columns, table.rows, {file: table.title, id: `document-${at}-${which}`}));
  });
}

function main() {
  headline();
  let timeline = null;
  comparisonSection();
  if (data.runs.length) {
    const run = data.runs[0];
    const findings = document.createElement('div');
    document.getElementById('main').append(findings);
    runsSection();
    timeline = timelineSection(data.runs);
    const judged = data.comparison ? data.runs : [run];
    findings.replaceWith(...judged.map((one, at) => findingsSection(one, timeline, at)));
    pathSection(run, timeline);
    flameSection(data.runs);
    rooflineSection(run);
    memorySection(run);
    totalsSections(run);
  }
  data.documents.forEach(documentSection);
  navigation();
  document.body.append(element('footer', {}, `Made by ${data.program}. One file: it asks the network for nothing.`));
  document.body.dataset.ready = 'yes';
}
main();
