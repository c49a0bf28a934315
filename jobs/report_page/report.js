  const data = JSON.parse(document.getElementById("data").textContent);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const number = (value) => value.toLocaleString("en").replaceAll(",", "\u202f");
  const time = (ms) => new Date(ms).toISOString().slice(0, 23).replace("T", " ");
  // As `printable` in jobs/cli/logs.py writes what cannot be seen, so that what a person types is compared with it.
  const escaped = (c) => {
    const code = c.codePointAt(0);
    const digits = (letter, count) => `\\${letter}${code.toString(16).padStart(count, "0")}`;
    return { "\t": "\\t", "\n": "\\n", "\r": "\\r" }[c] ?? (code < 0x100 ? digits("x", 2) : code < 0x10000 ? digits("u", 4) : digits("U", 8));
  };
  const visible = (text) => text.replace(/[\p{C}\p{Z}]/gu, (c) => (c === " " ? c : escaped(c)));
  const wantedIn = (field) => visible(field.value).trim().toLowerCase();
  const fileOf = (capture) => visible((data.uris[capture] ?? "a capture that is not in the tables").split("/").pop());
  const add = (parent, tag, text = "", attributes = {}) => {
    const element = document.createElement(tag);
    element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return parent.appendChild(element);
  };

  // A verdict has a shape of its own, and what became of a refused message has a colour; red is loss alone.
  const FATES = ["harmless", "pending", "lost"];
  const circle = (path, x, y, r) => { path.moveTo(x + r, y); path.arc(x, y, r, 0, 2 * Math.PI); };
  const polygon = (...corners) => (path, x, y, r) => {
    corners.forEach(([dx, dy], i) => (i ? path.lineTo(x + dx * r, y + dy * r) : path.moveTo(x + dx * r, y + dy * r)));
    path.closePath();
  };
  const cross = (path, x, y, r) => {
    path.moveTo(x - r, y - r); path.lineTo(x + r, y + r); path.moveTo(x - r, y + r); path.lineTo(x + r, y - r);
  };
  const MARKS = {
    in_order: ["accepted", "accepted", circle, 5, true],
    gap_expired: ["accepted over a gap", "gap", polygon([0, -1], [1, 0.8], [-1, 0.8]), 11, true],
    ...Object.fromEntries(FATES.flatMap((fate) => [
      [`duplicate ${fate}`, [`duplicate ${fate}`, fate, polygon([-1, -1], [1, -1], [1, 1], [-1, 1]), 8, false]],
      [`out_of_order ${fate}`, [`out of order ${fate}`, fate, cross, 8, false]],
    ])),
    unknown: ["unknown", "unknown", polygon([0, -1], [1, 0], [0, 1], [-1, 0]), 11, false],
  };
  const markOf = (picture, i) => {
    const verdict = data.verdicts[picture.v[i]];
    if (verdict === "new_sequence") return "in_order";
    return verdict === "duplicate" || verdict === "out_of_order" ? `${verdict} ${FATES[picture.o[i]]}` : verdict;
  };
  const shaped = (draw, size) => (u, series, first, last) => {
    const path = new Path2D();
    for (let i = first; i <= last; i++) {
      const y = u.data[series][i];
      if (y != null) draw(path, u.valToPos(u.data[0][i], "x", true), u.valToPos(y, "y", true), (size * devicePixelRatio) / 2);
    }
    return { stroke: path, fill: path, clip: null, flags: 3 };
  };
  const marked = ([label, tint, draw, size, filled]) => ({
    label,
    stroke: colour(tint),
    paths: () => null,
    points: { show: true, size, width: 1.6, stroke: colour(tint), fill: filled ? colour(tint) : "transparent", paths: shaped(draw, size) },
  });

  /** An axis of time on which long times without traffic are short: `at` leads to it, `back` to the time. */
  const HOUR = 3_600_000, MOST_BREAKS = 12;
  function axisOf(times, smallest) {
    const [first, last] = [times[0], times[times.length - 1]];
    const gaps = [];
    times.forEach((t, i) => { if (i && t - times[i - 1] > HOUR) gaps.push({ from: times[i - 1], to: t, length: t - times[i - 1] }); });
    gaps.sort((a, b) => b.length - a.length);
    let rest = last - first, broken = 0, drawn = rest;
    gaps.slice(0, MOST_BREAKS).forEach((gap, k) => {
      rest -= gap.length;
      if (gap.length > (3 * rest) / (k + 2) && times.length > 3 * (k + 1)) [broken, drawn] = [k + 1, rest];
    });
    const room = Math.max(drawn * 0.05, smallest);
    const panels = [{ from: first, shift: 0 }];
    gaps.slice(0, broken).sort((a, b) => a.from - b.from).forEach((gap) => {
      const before = panels[panels.length - 1];
      before.to = gap.from;
      panels.push({ from: gap.to, shift: before.shift + gap.length - room });
    });
    panels[panels.length - 1].to = last;
    const at = (t) => { const panel = panels.findLast((p) => p.from <= t) || panels[0]; return (panel === panels[panels.length - 1] ? t : Math.min(t, panel.to + room / 2)) - panel.shift; };
    const back = (x) => x + (panels.findLast((p) => p.from - p.shift <= x) || panels[0]).shift;
    const breaks = panels.slice(1).map((panel, i) => ({ from: panels[i].to - panels[i].shift, to: panel.from - panel.shift, length: panel.from - panels[i].to }));
    const splits = (u, axis, min, max, step) => panels.flatMap(({ from, to, shift }, i) => {
      const [low, high] = [Math.max(i ? from : -Infinity, min + shift), Math.min(i < panels.length - 1 ? to : Infinity, max + shift)];
      const ticks = [];
      for (let t = Math.ceil(low / step) * step; t <= high; t += step) ticks.push(t - shift);
      return ticks.length || low > high ? ticks : [low - shift];
    });
    return { at, back, breaks, splits };
  }
  const lengthOf = (ms) => (ms < 2 * 24 * HOUR ? `${Math.round(ms / HOUR)} h` : `${number(Math.round(ms / 24 / HOUR))} days`);
  const drawBreaks = (axis) => (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
    ctx.strokeStyle = colour("line"); ctx.fillStyle = colour("panel");
    for (const { from, to, length } of axis.breaks) {
      const [left, right] = [from, to].map((x) => u.valToPos(x, "x", true));
      const inset = (right - left) * 0.2;
      ctx.fillRect(left + inset, bbox.top, right - left - 2 * inset, bbox.height);
      ctx.beginPath();
      for (let y = bbox.top - (right - left); y < bbox.top + bbox.height; y += 8 * devicePixelRatio) { ctx.moveTo(left + inset, y + (right - left)); ctx.lineTo(right - inset, y + 2 * inset); }
      ctx.stroke();
      ctx.save();
      ctx.translate((left + right) / 2, bbox.top + bbox.height / 2); ctx.rotate(-Math.PI / 2);
      ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`; ctx.textAlign = "center"; ctx.textBaseline = "middle";
      const text = lengthOf(length), wide = ctx.measureText(text).width + 8 * devicePixelRatio;
      ctx.fillStyle = colour("panel"); ctx.fillRect(-wide / 2, -8 * devicePixelRatio, wide, 16 * devicePixelRatio);
      ctx.fillStyle = colour("faint"); ctx.fillText(text, 0, 0);
      ctx.restore();
    }
    ctx.restore();
  };
  const INCREMENTS = [1, 2, 5, 10, 20, 50, 100, 200, 500, ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, ...[1, 2, 7, 14, 28, 91, 182, 364].map((days) => days * 86_400)].map((s) => s * 1000)];

  const clockTimes = (axis) => (u, splits, place, space, step) => {
    let day = "";
    return splits.map((x) => {
      const at = time(axis.back(x));
      const clock = step < 1000 ? at.slice(11) : step < 60_000 ? at.slice(11, 19) : step < 86_400_000 ? at.slice(11, 16) : "";
      const date = at.slice(0, 10) === day ? "" : (day = at.slice(0, 10));
      return clock && date ? `${clock}\n${date}` : clock || date;
    });
  };
  const axes = (label, axis) => {
    const common = { stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
    return [{ ...common, values: clockTimes(axis), splits: axis.splits, incrs: INCREMENTS, space: 90 }, { ...common, label, size: 70, labelSize: 22, values: (u, splits) => splits.map((v) => (v == null ? "" : number(v))) }];
  };
  const plot = (parent, title, label, height, axis, series, columns, more = {}) =>
    new uPlot(
      {
        title, height, series, width: Math.max(parent.clientWidth, 280),
        axes: axes(label, axis), legend: { show: false }, padding: [null, 40, null, null], ...more,
        scales: { ...more.scales, x: { time: false, ...more.scales?.x } },
        hooks: { ...more.hooks, drawAxes: [drawBreaks(axis)] },
      },
      columns,
      parent,
    );

  /** What happened at each moment of a picture, by time: messages and OrderAcks in one row of moments. */
  function momentsOf(picture) {
    const moments = picture.t.map((t, i) => ({ t, message: i }));
    picture.acks.t.forEach((t, i) => moments.push({ t, ack: picture.acks.n[i] }));
    return moments.sort((a, b) => a.t - b.t);
  }

  function inWords(picture, moment) {
    const at = time(picture.start + moment.t);
    if (moment.ack !== undefined) return `${at}: OrderAck, everything up to number ${number(moment.ack)} is acknowledged`;
    const i = moment.message;
    const latency = picture.l[i] == null ? "no acknowledgment seen" : `acknowledged after ${number(picture.l[i])} ms`;
    const sequence = picture.sequences.length > 1 ? ` of sequence ${picture.sequences[picture.s[i]]}` : "";
    return `${at}: number ${number(picture.n[i])}${sequence}, previous ${number(picture.p[i])}: ${data.verdicts[picture.v[i]].replaceAll("_", " ")}; ` +
      `${latency}; frame ${picture.f[i]} of ${fileOf(picture.c[i])}`;
  }

  function summaryOf(picture) {
    const counts = new Map();
    picture.v.forEach((v) => counts.set(data.verdicts[v], (counts.get(data.verdicts[v]) || 0) + 1));
    const parts = [...counts].map(([verdict, count]) => `${number(count)} ${verdict.replaceAll("_", " ")}`);
    return `Sequence number over time, ${number(picture.t.length)} arrivals drawn: ${parts.join(", ")}; ${number(picture.acks.t.length)} OrderAcks.`;
  }

  function draw(figure) {
    const picture = data.pictures[Number(figure.dataset.picture)];
    figure.querySelectorAll(".plots, .readout, .reset, .rows").forEach((old) => old.remove());
    if (!picture.t.length) {
      add(figure, "p", "Its messages have no times, so they cannot be drawn over time.", { class: "readout" });
      return () => {};
    }
    const moments = momentsOf(picture);
    const axis = axisOf(moments.map((moment) => picture.start + moment.t), 1);
    const x = moments.map((moment) => axis.at(picture.start + moment.t));
    const column = (value) => moments.map((moment) => value(moment) ?? null);
    const held = (value) => { let last = null; return moments.map((moment) => (last = value(moment) ?? last)); };
    const plots = add(figure, "div", "", {
      class: "plots", tabindex: "0", role: "group", "aria-roledescription": "picture", "aria-label": summaryOf(picture),
    });
    const readout = add(figure, "p", "", { class: "readout", role: "status" });
    const key = `picture-${figure.dataset.picture}`;
    let steering = false;
    const common = {
      cursor: { sync: { key }, points: { show: false }, drag: { x: true, y: false } },
      hooks: { setCursor: [(u) => { if (!steering && u.cursor.idx != null && u.cursor.left >= 0) readout.textContent = inWords(picture, moments[u.cursor.idx]); }] },
    };
    const marks = Object.keys(MARKS);
    const drawn = [
      plot(plots, "Sequence number", "number", 320, axis,
        [{}, { label: "acknowledged", stroke: colour("stairs"), width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }, ...marks.map((mark) => marked(MARKS[mark]))],
        [x, held((m) => m.ack), ...marks.map((mark) => column((m) => (m.message !== undefined && markOf(picture, m.message) === mark ? picture.n[m.message] : null)))],
        common),
    ];
    if (picture.l.some((latency) => latency != null)) {
      drawn.push(plot(plots, "Time to the acknowledgment", "ms", 150, axis, [{}, marked(["latency", "accepted", circle, 5, true])],
        [x, column((m) => (m.message === undefined ? null : picture.l[m.message]))], common));
    } else add(plots, "p", "No acknowledgment of these messages was seen.");

    const whole = () => drawn.forEach((u) => u.setData(u.data, true));
    const zoom = (factor) => drawn.forEach((u) => {
      const { min, max } = u.scales.x;
      const middle = at < 0 ? (min + max) / 2 : x[at];
      u.setScale("x", { min: middle - (middle - min) * factor, max: middle + (max - middle) * factor });
    });
    let at = -1;
    const goTo = (next) => {
      if (next < 0 || next >= moments.length) return;
      at = next;
      steering = true;
      drawn[0].setCursor({ left: drawn[0].valToPos(x[at], "x"), top: drawn[0].height / 2 });
      steering = false;
      readout.textContent = inWords(picture, moments[at]);
    };
    const refused = (moment) => moment.message !== undefined && !["in_order", "new_sequence"].includes(data.verdicts[picture.v[moment.message]]);
    const step = (by, wanted) => {
      let next = at + by;
      while (next >= 0 && next < moments.length && !wanted(moments[next])) next += by;
      goTo(next);
    };
    const keys = {
      ArrowRight: (event) => step(1, event.shiftKey ? refused : (m) => m.message !== undefined),
      ArrowLeft: (event) => step(-1, event.shiftKey ? refused : (m) => m.message !== undefined),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: whole,
    };
    plots.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      keys[event.key](event);
      event.preventDefault();
    });
    add(figure, "button", "Show the whole", { type: "button", class: "reset" }).addEventListener("click", whole);
    rows(figure, picture, moments);
    const resized = new ResizeObserver(() => drawn.forEach((u) => {
      const width = Math.max(plots.clientWidth, 280);
      if (u.width !== width) u.setSize({ width, height: u.height });
    }));
    resized.observe(plots);
    return () => { resized.disconnect(); drawn.forEach((u) => u.destroy()); };
  }

  /** The picture as a table, for who cannot see it; filled when opened. */
  function rows(figure, picture, moments) {
    const details = add(figure, "details", "", { class: "rows" });
    add(details, "summary", "The same as a table");
    details.addEventListener("toggle", () => {
      if (!details.open || details.querySelector("table")) return;
      const box = add(details, "div", "", { class: "scroll tall", tabindex: "0", role: "group", "aria-label": "Arrivals of this picture" });
      const table = add(box, "table");
      add(table, "caption", "Arrivals in the order of their times");
      const head = add(add(table, "thead"), "tr");
      ["Time, UTC", "Verdict", "Number", "Previous", "Acknowledged after, ms", "Sequence", "Frame", "Capture"].forEach((name) => add(head, "th", name, { scope: "col" }));
      const body = add(table, "tbody");
      moments.filter((moment) => moment.message !== undefined).forEach(({ t, message: i }) => {
        const row = add(body, "tr");
        add(row, "th", time(picture.start + t), { scope: "row", class: "nowrap" });
        [data.verdicts[picture.v[i]].replaceAll("_", " "), picture.n[i], picture.p[i], picture.l[i] ?? "–", picture.sequences[picture.s[i]], picture.f[i], fileOf(picture.c[i])]
          .forEach((value) => add(row, "td", String(value)));
      });
      sortable(table);
    });
  }

  /** Puts the bands of incidents over the time that the plot beneath them shows; an incident that goes on is open. */
  function placeBands(figure, u, axis) {
    const width = u.over.clientWidth;
    figure.querySelectorAll(".bands > li").forEach((band) => {
      const { from, to } = band.dataset;
      const [bar, said] = [band.querySelector(".bar"), band.querySelector(".said")];
      bar.hidden = !from || !to;
      if (bar.hidden) return;
      const [left, right] = [from, to].map((ms) => Math.min(Math.max(u.valToPos(axis.at(Number(ms)), "x"), 0), width));
      const narrow = Math.max(right - left, 4);
      const start = u.over.offsetLeft + Math.min(left, width - narrow);
      bar.style.left = `${start}px`;
      bar.style.width = `${narrow}px`;
      // Its words stand on the bar, beside it, or, where all is narrow, on lines of their own.
      said.style.marginLeft = "0";
      said.style.whiteSpace = "nowrap";
      const words = said.offsetWidth, end = start + narrow, whole = figure.clientWidth;
      const place = words <= narrow ? start : end + words + 8 <= whole ? end + 8 : words <= start ? start - words : null;
      said.style.whiteSpace = place == null ? "normal" : "nowrap";
      said.style.marginLeft = `${place ?? 0}px`;
    });
  }

  function drawOverTime(figure) {
    figure.querySelectorAll(".plots, .readout").forEach((old) => old.remove());
    const { t, step, accepted, harmless, pending, lost, unknown } = data.steps;
    const axis = axisOf(t, 3 * step);
    const x = t.map(axis.at);
    const total = (values) => values.reduce((a, b) => a + b, 0);
    // Each has an axis of its own: resends by the thousand leave the few of a lost message as high as they are.
    const shown = [
      ["lost", "Refused, of lost messages", "of lost messages", lost],
      ["pending", "Refused, of pending and stuck messages", "of pending and stuck ones", pending],
      ["accepted", "Accepted", "accepted", accepted],
      ["harmless", "Refused without harm", "refused without harm", harmless],
      ["unknown", "Not judged", "not judged", unknown],
    ].filter(([tint, , , values]) => tint === "accepted" || total(values));
    const said = (of) => shown.map(([, , words, values]) => `${number(of(values))} ${words}`).join(", ");
    const plots = add(figure, "div", "", {
      class: "plots", role: "img",
      "aria-label": `Arrivals in steps of ${number(step / 1000)} s from ${time(t[0])} UTC on: ${said(total)}. The sessions' tables have the figures.`,
    });
    const readout = add(figure, "p", "", { class: "readout" });
    const bars = (tint) => ({ stroke: colour(tint), fill: colour(tint), paths: uPlot.paths.bars({ size: [0.9, 60, 2] }), points: { show: false } });
    const say = (u) => { const i = u.cursor.idx; if (i != null && u.cursor.left >= 0) readout.textContent = `${time(t[i]).slice(0, 19)} and ${number(step / 1000)} s on: ${said((values) => values[i])}`; };
    const more = { cursor: { sync: { key: "over-time" }, points: { show: false } }, hooks: { setCursor: [say] }, scales: { x: { range: (u, min, max) => (x.length === 1 ? [x[0] - step, x[0] + step] : [min - step / 2, max + step / 2]) }, y: { range: (u, min, max) => [0, Math.max(max, 1) * 1.05] } } };
    const bare = (values) => values.map((value) => value || null); // a bar of nothing would be a line
    const place = (u) => placeBands(figure, u, axis);
    const [below, beside] = axes("arrivals", axis);
    const whole = { ...beside, incrs: Array.from({ length: 10 }, (_, zeros) => [1, 2, 5].map((digit) => digit * 10 ** zeros)).flat(), space: 22 };
    const drawn = shown.map(([tint, title, , values], i) => plot(plots, title, "", i < shown.length - 1 ? 105 : 135, axis, [{}, bars(tint)], [x, bare(values)], {
      ...more,
      axes: [i < shown.length - 1 ? { ...below, values: (u, splits) => splits.map(() => ""), size: 8 } : below, whole],
      hooks: i ? more.hooks : { ...more.hooks, ready: [place], setScale: [place], setSize: [place] },
    }));
    figure.querySelectorAll("details").forEach((part) => { part.ontoggle = () => place(drawn[0]); });
    const resized = new ResizeObserver(() => drawn.forEach((u) => { if (u.width !== plots.clientWidth) u.setSize({ width: plots.clientWidth, height: u.height }); }));
    resized.observe(plots);
    return () => { resized.disconnect(); drawn.forEach((u) => u.destroy()); };
  }

