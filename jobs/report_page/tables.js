  /** A column by whose head cell a table is sorted: by numbers where it has any, else by the text. */
  const keyOf = (cell, isNumber) => {
    const text = cell?.dataset.sort ?? (cell?.textContent ?? "").replaceAll("\u202f", "").trim();
    return isNumber ? Number(/-?\d+(\.\d+)?/.exec(text)?.[0] ?? -Infinity) : text;
  };
  const inOrder = (a, b) => (typeof a === "number" ? a - b || 0 : a.localeCompare(b, "en", { numeric: true }));
  const NEXT = { none: "ascending", ascending: "descending", descending: "none" };
  const headsOf = (table) => [...table.querySelectorAll("thead tr:last-child > th")];
  const placeOf = new WeakMap(); // of a row before anything was sorted

  /** The tables that are sorted as one: those of a list of messages, of which the first ones are always shown. */
  const sortedWith = (table) => (table.closest(".list") ? [...table.closest("section").querySelectorAll(".list table")] : [table]);

  function sortBy(table, column, direction) {
    const together = sortedWith(table);
    const isNumber = headsOf(table)[column].classList.contains("n");
    const many = together.map((one) => one.tBodies[0].rows.length);
    const rows = together.flatMap((one) => [...one.tBodies[0].rows]);
    rows.forEach((row, i) => { if (!placeOf.has(row)) placeOf.set(row, i); });
    const before = (a, b) => placeOf.get(a) - placeOf.get(b);
    const keys = new Map(rows.map((row) => [row, keyOf(row.cells[column], isNumber)]));
    const sign = direction === "descending" ? -1 : 1;
    rows.sort(direction === "none" ? before : (a, b) => sign * inOrder(keys.get(a), keys.get(b)) || before(a, b));
    together.forEach((one, i) => {
      one.tBodies[0].append(...rows.splice(0, many[i]));
      headsOf(one).forEach((head, at) => { if (at === column && direction !== "none") head.setAttribute("aria-sort", direction); else head.removeAttribute("aria-sort"); });
    });
  }

  /** Makes the head cells of a table buttons: sorted upwards, downwards, and as it was. */
  function sortable(table) {
    headsOf(table).forEach((head, column) => {
      const text = head.textContent;
      head.textContent = "";
      add(head, "button", text, { type: "button", class: "sort" }).addEventListener("click", () => sortBy(table, column, NEXT[head.getAttribute("aria-sort") ?? "none"]));
    });
  }
  document.querySelectorAll("table").forEach(sortable);

  // Beside each time in UTC, the same in the time zone of this browser, unless that is UTC, too.
  const digits = (value) => String(value).padStart(2, "0");
  const localOf = (at) => {
    const day = [at.getFullYear(), at.getMonth() + 1, at.getDate()].map(digits).join("-");
    const clock = [at.getHours(), at.getMinutes(), at.getSeconds()].map(digits).join(":");
    return day === at.toISOString().slice(0, 10) ? clock : `${day} ${clock}`;
  };
  const local = [...document.querySelectorAll("time")].filter((one) => new Date(one.dateTime).getTimezoneOffset());
  local.forEach((one) => { add(one, "small", ` (${localOf(new Date(one.dateTime))})`, { class: "local" }); });
  if (local.length) document.getElementById("zone").textContent = ` Times are UTC, and in parentheses in the time zone of this browser, ${Intl.DateTimeFormat().resolvedOptions().timeZone}.`;

