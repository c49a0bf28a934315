  /** A cell of a CSV file that no spreadsheet takes for a formula, in which every character can be seen. */
  const cell = (value) => {
    const text = visible(String(value ?? ""));
    const safe = /^[=+\-@]/.test(text) ? `'${text}` : text;
    return /[",]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const csvOf = (list) => [data.columns, ...data.lists[list].filter((row) => isWanted(list, row))].map((row) => `${row.slice(0, data.columns.length).map(cell).join(",")}\r\n`).join("");
  document.querySelectorAll(".save").forEach((part) => {
    const { list } = part.dataset;
    const button = (text, act) => {
      part.append(" ");
      const made = add(part, "button", text, { type: "button" });
      made.addEventListener("click", () => act(made));
    };
    button("copy", async (made) => {
      try { await navigator.clipboard.writeText(csvOf(list)); made.textContent = "copied"; } catch { made.textContent = "not allowed here: save it"; }
      setTimeout(() => { made.textContent = "copy"; }, 2000);
    });
    button("save", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([csvOf(list)], { type: "text/csv" }));
      link.download = `${list}.csv`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    });
  });

  document.querySelectorAll("code.copy").forEach((code) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "copy";
    button.setAttribute("aria-label", `Copy ${code.dataset.copy}`);
    code.after(" ", button);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.dataset.copy);
        button.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(code); // without a clipboard, the text is ready for the keyboard
        button.textContent = "selected";
      }
      setTimeout(() => { button.textContent = "copy"; }, 2000);
    });
  });

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

  // What is typed as a queue or a machine chooses incidents, their bands and messages alike.
  const fields = [...document.querySelectorAll(".filters [data-by]")];
  const wanted = () => Object.fromEntries(fields.map((field) => [field.dataset.by, field.type === "checkbox" ? (field.checked ? field.value : "") : wantedIn(field)]));
  const named = (of) => Object.fromEntries(data.columns.map((name, i) => [name, of[i]]));
  const known = (text) => visible(text ?? "").toLowerCase();
  const machines = data.machines.map(known);
  const kindsOf = (outcome, severity) => [severity, ...outcome.split(", ")];
  let asked = wanted();
  let linked = {}; // what a figure asks of the one list that it leads to
  const askedOf = (list) => (linked.list === list ? linked : asked);
  const isAskedOf = (list) => ["queue", "managers", "kind"].some((by) => askedOf(list)[by]);
  function isChosen(list, { queue, managers, kinds }) {
    const by = askedOf(list);
    return queue.includes(by.queue ?? "") && managers.includes(by.managers ?? "") && (!by.kind || kinds.includes(by.kind));
  }

  /** Whether the filter chooses a message of the whole list, of which the page shows the first ones only. */
  function isWanted(list, row) {
    const [severity, place] = row.slice(data.columns.length);
    const { outcome, destination_queue: queue } = named(row);
    return isChosen(list, { queue: known(`${queue ?? ""} ${data.queue_names[queue] ?? ""}`), managers: machines[place], kinds: kindsOf(outcome, severity) });
  }

  function chooseIncidents() {
    const all = [...document.querySelectorAll("details.incident")];
    const by = ["severity", "queue", "managers", "new"].filter((name) => asked[name]);
    all.forEach((incident) => {
      incident.hidden = !by.every((name) => incident.dataset[name].toLowerCase().includes(asked[name]));
      const band = document.querySelector(`.bands [href="#${incident.id}"]`);
      if (band) band.parentElement.hidden = incident.hidden;
    });
    document.querySelectorAll("#repaired, #repaired-bands").forEach((part) => { if (by.length && part.querySelector("details.incident:not([hidden]), .bands > :not([hidden])")) part.open = true; });
    document.getElementById("incidents-filtered").textContent = by.length ? `${all.filter((incident) => !incident.hidden).length} of ${all.length} listed` : "";
  }

  /** The messages of a list that are not among those shown with their proof, but that the filter chooses. */
  const MOST_FOUND = 100;
  function showFound(section, list, shown) {
    section.querySelector(".found")?.remove();
    if (!data.lists[list]) return [0, 0];
    const found = data.lists[list].filter((row, i) => i >= shown && isWanted(list, row));
    if (!found.length) return [0, data.lists[list].length - shown];
    const box = add(section, "div", "", { class: "found" });
    const scroll = add(box, "div", "", { class: "scroll", tabindex: "0", role: "group", "aria-label": "More messages that match" });
    const table = add(scroll, "table", "", { class: "cards" });
    add(table, "caption", "More that match, without what proves it");
    const head = add(add(table, "thead"), "tr");
    ["Outcome", "Number", "Message and label", "Queue and sender", "First and last seen, UTC"].forEach((name) => add(head, "th", name, { scope: "col" }));
    const body = add(table, "tbody");
    found.slice(0, MOST_FOUND).forEach((row) => {
      const one = named(row), line = add(body, "tr");
      const last = one.numbers > 1 ? `–${number(one.number + one.numbers - 1)}` : "";
      add(line, "th", one.outcome.replaceAll("_", " "), { scope: "row" });
      add(line, "td", `${number(one.number)}${last}`, { "data-label": "Number" });
      const short = (id) => id.replace(/^([^-\\]+)-[^\\]*/, "$1…"); // a GUID's first part, as everywhere in the lists
      add(line, "td", visible([one.message_id ? short(one.message_id) : "never seen", one.label].filter(Boolean).join(", ")), { class: "queue" });
      const sender = `from ${short(one.source_queue_manager)}${one.first_address ? ` at ${one.first_address}` : ""}`;
      add(line, "td", visible(`${one.destination_queue ?? "not named"}, ${sender}`), { class: "queue" });
      add(line, "td", [...new Set([one.first_seen, one.last_seen])].filter(Boolean).join(" to ") || "no time");
    });
    if (found.length > MOST_FOUND) add(box, "p", `${number(found.length - MOST_FOUND)} more match: save them as CSV.`);
    return [found.length, data.lists[list].length - shown];
  }

  function chooseMessages() {
    document.querySelectorAll(".filters button.clear").forEach((button) => { button.hidden = !fields.some((field) => (field.type === "checkbox" ? field.checked : field.value)); });
    let matching = 0, all = 0;
    document.querySelectorAll("section.messages").forEach((section) => {
      const rows = [...section.querySelectorAll("tr[data-kind]")];
      if (!rows.length) return;
      const isAsked = isAskedOf(section.id);
      rows.forEach((row) => {
        const { queue, managers, kind } = row.dataset;
        row.hidden = isAsked && !isChosen(section.id, { queue: queue.toLowerCase(), managers: managers.toLowerCase(), kinds: kind.split(" ") });
      });
      section.querySelectorAll(".list").forEach((part) => {
        const some = part.querySelector("tr[data-kind]:not([hidden])");
        part.hidden = isAsked && !some;
        if (isAsked && some && part.tagName === "DETAILS") part.open = true;
      });
      let [found, more] = isAsked ? showFound(section, section.id, rows.length) : [0, 0];
      if (!isAsked) section.querySelector(".found")?.remove();
      found += rows.filter((row) => !row.hidden).length;
      section.querySelector(".chosen").hidden = !isAsked;
      section.querySelector(".matching").textContent = isAsked ? `${found ? number(found) : "None"} of ${number(rows.length + more)} match.` : "";
      const save = section.querySelector(".save");
      if (save) {
        const words = save.querySelector("span");
        words.dataset.all ??= words.textContent;
        words.textContent = isAsked ? `As CSV, the ${number(data.lists[section.id].filter((row) => isWanted(section.id, row)).length)} that match:` : words.dataset.all;
      }
      matching += found;
      all += rows.length + more;
    });
    const said = document.getElementById("messages-filtered");
    if (said) said.textContent = isAskedOf("") ? `${matching ? number(matching) : "none"} of ${number(all)} rows` : "";
  }

  fields.forEach((field) => field.addEventListener("input", () => {
    fields.filter((other) => other !== field && other.dataset.by === field.dataset.by).forEach((other) => { other.value = field.value; });
    askAgain();
  }));

  function askAgain() {
    asked = wanted();
    linked = {};
    if (document.getElementById("incidents-filtered")) chooseIncidents();
    chooseMessages();
  }

  /** Shows everything again: by the buttons, and before a figure of the headline leads to its rows. */
  function clearFilters() {
    fields.forEach((field) => { if (field.type === "checkbox") field.checked = false; else field.value = ""; });
    askAgain();
  }
  document.querySelectorAll('button.clear, #tonight a[href^="#"]').forEach((part) => part.addEventListener("click", clearFilters));

  // A figure of one outcome or of one machine leads to these messages of its list; all else stays as it is.
  document.querySelectorAll("a[data-outcome], a[data-machine]").forEach((link) => link.addEventListener("click", () => {
    linked = { list: link.hash.slice(1), kind: link.dataset.outcome, managers: link.dataset.machine };
    chooseMessages();
  }));

  const filter = document.getElementById("filter");
  filter?.addEventListener("input", () => {
    const wanted = wantedIn(filter);
    const all = [...document.querySelectorAll("#session-table tbody tr")];
    all.forEach((row) => { row.hidden = !row.dataset.text.toLowerCase().includes(wanted); });
    document.getElementById("filtered").textContent = wanted ? `${all.filter((row) => !row.hidden).length} of ${all.length} listed` : "";
  });
