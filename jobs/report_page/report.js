"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const number = (value) => value.toLocaleString("en").replaceAll(",", "\u202f");
  const time = (ms) => new Date(ms).toISOString().slice(0, 23).replace("T", " ");
  const fileOf = (capture) => (data.uris[capture] ?? "a capture that is not in the tables").split("/").pop();
  const add = (parent, tag, text = "", attributes = {}) => {
    const element = document.createElement(tag);
    element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return parent.appendChild(element);
  };

  // Each verdict has a colour and a shape of its own, so that neither alone carries the meaning.
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
    duplicate: ["duplicate", "duplicate", polygon([-1, -1], [1, -1], [1, 1], [-1, 1]), 8, false],
    out_of_order: ["out of order", "refused", cross, 8, false],
    unknown: ["unknown", "unknown", polygon([0, -1], [1, 0], [0, 1], [-1, 0]), 11, false],
  };
  const markOf = (verdict) => (verdict === "new_sequence" ? "in_order" : verdict);
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

  const clockTimes = (u, splits, axis, space, step) => {
    let day = "";
    return splits.map((ms) => {
      const at = time(ms);
      const clock = step < 1000 ? at.slice(11) : step < 60_000 ? at.slice(11, 19) : step < 86_400_000 ? at.slice(11, 16) : "";
      const date = at.slice(0, 10) === day ? "" : (day = at.slice(0, 10));
      return clock && date ? `${clock}\n${date}` : clock || date;
    });
  };
  const axes = (label) => {
    const common = { stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
    return [{ ...common, values: clockTimes, space: 90 }, { ...common, label, size: 70, labelSize: 22, values: (u, splits) => splits.map((v) => (v == null ? "" : number(v))) }];
  };
  const plot = (parent, title, label, height, series, columns, more = {}) =>
    new uPlot(
      {
        title, height, series, width: Math.max(parent.clientWidth, 280), ms: 1,
        tzDate: (ms) => uPlot.tzDate(new Date(ms), "Etc/UTC"),
        axes: axes(label), legend: { show: false }, ...more,
      },
      columns,
      parent,
    );

  /** What happened at each moment of a picture, by time: messages, OrderAcks and holes in one row of moments. */
  function momentsOf(picture) {
    const moments = picture.t.map((t, i) => ({ t, message: i }));
    picture.acks.t.forEach((t, i) => moments.push({ t, ack: picture.acks.n[i] }));
    picture.holes.t.forEach((t, i) => moments.push({ t, missing: picture.holes.b[i] }));
    return moments.sort((a, b) => a.t - b.t);
  }

  function inWords(picture, moment) {
    const at = time(picture.start + moment.t);
    if (moment.ack !== undefined) return `${at}: OrderAck, everything up to number ${number(moment.ack)} is acknowledged`;
    if (moment.missing !== undefined) return `${at}: ${number(moment.missing)} bytes missing so far`;
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
    return `Sequence number over time, ${number(picture.t.length)} messages drawn: ${parts.join(", ")}; ${number(picture.acks.t.length)} OrderAcks.`;
  }

  function draw(figure) {
    const picture = data.pictures[Number(figure.dataset.picture)];
    figure.querySelectorAll(".plots, .readout, .reset, .rows").forEach((old) => old.remove());
    if (!picture.t.length) {
      add(figure, "p", "Its messages have no times, so they cannot be drawn over time.", { class: "readout" });
      return () => {};
    }
    const moments = momentsOf(picture);
    const x = moments.map((moment) => picture.start + moment.t);
    const column = (value) => moments.map((moment) => value(moment) ?? null);
    const held = (value, first = null) => { let last = first; return moments.map((moment) => (last = value(moment) ?? last)); };
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
      plot(plots, "Sequence number", "number", 320,
        [{}, { label: "acknowledged", stroke: colour("stairs"), width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }, ...marks.map((mark) => marked(MARKS[mark]))],
        [x, held((m) => m.ack), ...marks.map((mark) => column((m) => (m.message !== undefined && markOf(data.verdicts[picture.v[m.message]]) === mark ? picture.n[m.message] : null)))],
        common),
    ];
    if (picture.l.some((latency) => latency != null)) {
      drawn.push(plot(plots, "Time to the acknowledgment", "ms", 150, [{}, marked(["latency", "accepted", circle, 5, true])],
        [x, column((m) => (m.message === undefined ? null : picture.l[m.message]))], common));
    } else add(plots, "p", "No acknowledgment of these messages was seen.");
    if (picture.holes.t.length) {
      drawn.push(plot(plots, "Bytes missing from the captures so far", "bytes", 130,
        [{}, { stroke: colour("refused"), width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }],
        [x, held((m) => m.missing, 0)], common));
    } else add(plots, "p", "No bytes of its connections are known to be missing.");

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
      const box = add(details, "div", "", { class: "scroll tall", tabindex: "0", role: "group", "aria-label": "Messages of this picture" });
      const table = add(box, "table");
      add(table, "caption", "Messages in the order of their times");
      const head = add(add(table, "thead"), "tr");
      ["Time, UTC", "Verdict", "Number", "Previous", "Acknowledged after, ms", "Sequence", "Frame", "Capture"].forEach((name) => add(head, "th", name, { scope: "col" }));
      const body = add(table, "tbody");
      moments.filter((moment) => moment.message !== undefined).forEach(({ t, message: i }) => {
        const row = add(body, "tr");
        add(row, "th", time(picture.start + t), { scope: "row", class: "nowrap" });
        [data.verdicts[picture.v[i]].replaceAll("_", " "), picture.n[i], picture.p[i], picture.l[i] ?? "–", picture.sequences[picture.s[i]], picture.f[i], fileOf(picture.c[i])]
          .forEach((value) => add(row, "td", String(value)));
      });
    });
  }

  function drawOverTime(figure) {
    figure.querySelectorAll(".plots, .readout").forEach((old) => old.remove());
    const { t, step, accepted, refused, unknown } = data.steps;
    const x = [];
    for (let ms = t[0]; ms <= t[t.length - 1]; ms += step) x.push(ms);
    const place = new Map(t.map((ms, i) => [ms, i]));
    const filled = (values) => x.map((ms) => (place.has(ms) ? values[place.get(ms)] : 0));
    const sum = (a, b) => a.map((value, i) => value + b[i]);
    const [yes, no, open] = [accepted, refused, unknown].map(filled);
    const total = (values) => number(values.reduce((a, b) => a + b, 0));
    const plots = add(figure, "div", "", {
      class: "plots", role: "img",
      "aria-label": `Messages in steps of ${number(step / 1000)} s from ${time(x[0])} UTC on: ${total(yes)} accepted, ${total(no)} refused, ${total(open)} unknown. The sessions' tables have the figures.`,
    });
    const readout = add(figure, "p", "", { class: "readout" });
    const bars = (tint) => ({ stroke: colour(tint), fill: colour(tint), paths: uPlot.paths.bars({ size: [0.9, 60] }), points: { show: false } });
    const say = (u) => { const i = u.cursor.idx; if (i != null && u.cursor.left >= 0) readout.textContent = `${time(x[i]).slice(0, 19)} and ${number(step / 1000)} s on: ${number(yes[i])} accepted, ${number(no[i])} refused, ${number(open[i])} unknown`; };
    const more = { cursor: { sync: { key: "over-time" }, points: { show: false } }, hooks: { setCursor: [say] }, scales: { x: { range: (u, min, max) => (x.length === 1 ? [x[0] - step, x[0] + step] : [min - step / 2, max + step / 2]) }, y: { range: (u, min, max) => [0, Math.max(max, 1) * 1.05] } } };
    const bare = (values) => values.map((value) => value || null); // a bar of nothing would be a line
    const drawn = [plot(plots, "Accepted", "messages", 150, [{}, bars("accepted")], [x, bare(yes)], more)];
    if (total(no) !== "0" || total(open) !== "0") {
      drawn.push(plot(plots, "Refused (red) and unknown (violet)", "messages", 130, [{}, bars("unknown"), bars("refused")], [x, bare(sum(no, open)), bare(no)], more));
    }
    const resized = new ResizeObserver(() => drawn.forEach((u) => { if (u.width !== plots.clientWidth) u.setSize({ width: plots.clientWidth, height: u.height }); }));
    resized.observe(plots);
    return () => { resized.disconnect(); drawn.forEach((u) => u.destroy()); };
  }

  // Pictures are drawn when their session is opened, and again when the colours change.
  const shown = new Map();
  const show = (figure, how) => { shown.get(figure)?.undo(); shown.set(figure, { undo: how(figure), how }); };
  const overTime = document.getElementById("over-time");
  if (overTime) show(overTime, drawOverTime);
  document.querySelectorAll("details.session").forEach((session) => {
    const drawAll = () => { if (session.open) session.querySelectorAll(".picture").forEach((figure) => { if (!shown.has(figure)) show(figure, draw); }); };
    session.addEventListener("toggle", drawAll);
    drawAll();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => [...shown].forEach(([figure, { how }]) => show(figure, how)));

  const openTarget = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target) return;
    if (target.classList.contains("messages")) target.querySelectorAll(":scope > details").forEach((list) => { list.open = true; });
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  };
  addEventListener("hashchange", openTarget);
  openTarget();

  const fields = [...document.querySelectorAll("#incident-filters [data-by]")];
  const chooseIncidents = () => {
    const wanted = fields.map((field) => [field.dataset.by, field.type === "checkbox" ? (field.checked ? field.value : "") : field.value.trim().toLowerCase()]);
    const all = [...document.querySelectorAll("details.incident")];
    all.forEach((incident) => { incident.hidden = !wanted.every(([by, value]) => incident.dataset[by].toLowerCase().includes(value)); });
    const asked = wanted.some(([, value]) => value);
    const repaired = document.getElementById("repaired");
    if (asked && repaired?.querySelector("details.incident:not([hidden])")) repaired.open = true;
    document.getElementById("incidents-filtered").textContent = asked ? `${all.filter((incident) => !incident.hidden).length} of ${all.length} listed` : "";
  };
  fields.forEach((field) => field.addEventListener("input", chooseIncidents));

  const filter = document.getElementById("filter");
  filter?.addEventListener("input", () => {
    const wanted = filter.value.trim().toLowerCase();
    const all = [...document.querySelectorAll("#session-table tbody tr")];
    all.forEach((row) => { row.hidden = !row.dataset.text.toLowerCase().includes(wanted); });
    document.getElementById("filtered").textContent = wanted ? `${all.filter((row) => !row.hidden).length} of ${all.length} listed` : "";
  });
})();
