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

