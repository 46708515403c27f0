"use strict";
// What all pages share: the view in the address, tables that sort, files to save, charts that tell their values.
const page = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);

  // The address is #section&key=value&key=value: a file has no other part that a script may change.
  const address = {
    anchor: "",
    view: new URLSearchParams(),
    readers: [],
    read() {
      const [anchor, ...rest] = location.hash.slice(1).split("&");
      if (rest.length || anchor.includes("=")) {
        this.view = new URLSearchParams((anchor.includes("=") ? [anchor, ...rest] : rest).join("&"));
      }
      this.anchor = anchor.includes("=") ? "" : anchor;
    },
    get(key) { return this.view.get(key) ?? ""; },
    set(values, { anchor = this.anchor, push = false } = {}) {
      for (const [key, value] of Object.entries(values)) value === "" ? this.view.delete(key) : this.view.set(key, value);
      this.anchor = anchor;
      const text = this.view.toString();
      const hash = `#${this.anchor}${text ? "&" + text : ""}`;
      if (hash !== (location.hash || "#")) history[push ? "pushState" : "replaceState"](null, "", hash);
    },
    show() {
      for (const reader of this.readers) reader();
      const target = this.anchor && document.getElementById(decodeURIComponent(this.anchor));
      if (!target) return;
      if (target.tagName === "DETAILS") target.open = true;
      target.scrollIntoView();
    },
  };
  // A link to a section keeps the view.
  addEventListener("hashchange", () => { address.read(); address.set({}); address.show(); });
  addEventListener("popstate", () => { address.read(); for (const reader of address.readers) reader(); });

  const element = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };

  // Files.
  const save = (name, blob) => {
    const link = element("a", { href: URL.createObjectURL(blob), download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const textOf = (uri) => decodeURIComponent(uri.slice(uri.indexOf(",") + 1));
  const savePicture = (name, image, scale) => {
    const canvas = element("canvas", { width: image.naturalWidth * scale, height: image.naturalHeight * scale });
    const context = canvas.getContext("2d");
    context.fillStyle = "#fff";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(name, blob));
  };
  const savers = {
    csv: (name) => save(`${name}.csv`, new Blob([data.tables[name]], { type: "text/csv" })),
    json: (name) => save(`${name}.json`, new Blob([JSON.stringify(data.run, null, 1)], { type: "application/json" })),
    svg: (name, image) => save(`${name}.svg`, new Blob([textOf(image.src)], { type: "image/svg+xml" })),
    png: (name, image) => savePicture(`${name}.png`, image, image.src.startsWith("data:image/svg") ? 3 : 1),
  };
  for (const span of document.querySelectorAll(".save")) span.hidden = false;
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-save]");
    if (button) savers[button.dataset.save](button.dataset.name, button.closest("figure")?.querySelector("img"));
  });

  // Tables. A number is what a cell begins with; without numbers, letters decide.
  const number = (text) => {
    const found = /^(?:p )?[<>=≤≥ ]*([+−-]?\d[\d,]*\.?\d*(e[+-]?\d+)?)/.exec(text.trim());
    return found ? Number(found[1].replace("−", "-").replaceAll(",", "")) : NaN;
  };
  const valueOf = (cell) => cell.dataset.value ?? cell.textContent;
  const compare = (a, b) => {
    const [x, y] = [number(a), number(b)];
    if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1; // what has no number is last either way
    return Number.isNaN(x) ? a.trim().localeCompare(b.trim()) : x - y;
  };
  const bothNumbers = (a, b) => !Number.isNaN(number(a)) && !Number.isNaN(number(b));
  const sorted = (items, value, way) => [...items].sort((a, b) => {
    const order = compare(value(a), value(b));
    return way === "down" && (bothNumbers(value(a), value(b)) || (Number.isNaN(number(value(a))) && Number.isNaN(number(value(b))))) ? -order : order;
  });
  const sortButton = (cell, words, press) => {
    const button = element("button", { type: "button", className: "sort", title: words });
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", press);
  };
  const next = { "": "up", up: "down", down: "" };
  const ways = { up: "ascending", down: "descending" };

  // Rows of a table by a column; within each body, so that groups stay together.
  const sortable = (table) => {
    const key = `sort-${table.dataset.name}`;
    const heads = [...table.tHead.rows[0].cells];
    const bodies = [...table.tBodies].map((body) => ({ body, rows: [...body.rows] }));
    const apply = () => {
      const [column, way] = address.get(key).split("-");
      const head = way && heads[Number(column)];
      for (const each of heads) each === head ? each.setAttribute("aria-sort", ways[way]) : each.removeAttribute("aria-sort");
      for (const { body, rows } of bodies) {
        const [fixed, moving] = [rows.filter((row) => row.className === "group"), rows.filter((row) => row.className !== "group")];
        const value = (row) => valueOf(row.cells[heads.indexOf(head)]);
        body.append(...fixed, ...(head ? sorted(moving, value, way) : moving));
      }
    };
    heads.forEach((head, i) => sortButton(head, "Sort the rows by this", () => {
      const [column, way] = address.get(key).split("-");
      const turn = Number(column) === i && way ? next[way] : "up";
      address.set({ [key]: turn && `${i}-${turn}` });
      apply();
    }));
    address.readers.push(apply);
    return apply;
  };
  // Columns of the summary by a row: the best model first where the metric says what is better.
  const sortableColumns = (table) => {
    const rows = [...table.rows].filter((row) => row.cells.length > 1);
    const cells = rows.map((row) => [...row.cells].slice(1));
    const metric = (row) => row.querySelector(".metric")?.textContent.replace(/[\s↑↓]/g, "") ?? "";
    const apply = () => {
      const wanted = address.get("models-by");
      const at = rows.findIndex((row) => metric(row) && metric(row) === wanted);
      let order = cells[0].map((_, i) => i);
      if (at > 0) order = sorted(order, (i) => valueOf(cells[at][i]), rows[at].dataset.better === "-1" ? "up" : "down");
      rows.forEach((row, r) => {
        row.append(...order.map((i) => cells[r][i]));
        if (r) row.cells[0].ariaSort = r === at ? "other" : null;
      });
    };
    for (const row of rows.slice(1)) {
      sortButton(row.querySelector(".metric"), "Order the models by this", () => {
        address.set({ "models-by": address.get("models-by") === metric(row) ? "" : metric(row) });
        apply();
      });
    }
    address.readers.push(apply);
  };
  for (const table of document.querySelectorAll("table.sortable")) sortable(table);
  for (const table of document.querySelectorAll("table.summary")) { sortable(table); sortableColumns(table); }

  // Charts: the point nearest to the pointer says what it is; arrow keys go from point to point.
  const digits = (value) => (value === null ? "" : String(Number(value.toPrecision(4))).replace("-", "−"));
  const words = (series, [, , x, y, low, high], several) => {
    const ends = low === null || high === null ? "" : ` [${digits(low)}, ${digits(high)}]`;
    const along = low !== null && !(low <= y && y <= high) ? [` ${digits(x)}${ends}`, digits(y)] : [` ${digits(x)}`, digits(y) + ends];
    const told = [series.x && `${series.x}:${along[0]}`, series.y && `${series.y}: ${along[1]}`].filter(Boolean);
    return `${series.name}${several && series.panel ? ` (${series.panel})` : ""} — ${told.join("; ") || `${along[0]}, ${along[1]}`}`;
  };
  const telling = (figure, all) => {
    const drawing = figure.querySelector(".drawing");
    const points = all.flatMap((series) => series.points.map((point) => ({ series, point })));
    const several = new Set(all.map((series) => series.panel)).size > 1;
    const dot = element("span", { className: "dot", hidden: true });
    const said = element("output", { className: "said", hidden: true });
    drawing.append(dot, said);
    Object.assign(drawing, { tabIndex: 0, role: "group", ariaLabel: "Chart: arrow keys read its points" });
    let at = -1;
    const tell = (i) => {
      at = i;
      const { series, point } = points[i];
      const image = drawing.querySelector("img");
      const [left, top] = [image.offsetLeft + point[0] * image.offsetWidth, image.offsetTop + point[1] * image.offsetHeight];
      dot.style.cssText = `left:${left}px;top:${top}px`;
      said.textContent = words(series, point, several);
      dot.hidden = said.hidden = false;
      const room = drawing.clientWidth - said.offsetWidth;
      said.style.cssText = `left:${Math.max(0, Math.min(left + 10, room))}px;top:${top > said.offsetHeight + 14 ? top - said.offsetHeight - 10 : top + 12}px`;
    };
    const quiet = () => { dot.hidden = said.hidden = true; at = -1; };
    drawing.addEventListener("pointermove", (event) => {
      const box = drawing.querySelector("img").getBoundingClientRect();
      const far = ({ point }) => Math.hypot(event.clientX - box.x - point[0] * box.width, event.clientY - box.y - point[1] * box.height);
      const nearest = points.reduce((best, each, i) => (far(each) < far(points[best]) ? i : best), 0);
      far(points[nearest]) < 40 ? tell(nearest) : quiet();
    });
    drawing.addEventListener("pointerleave", quiet);
    drawing.addEventListener("focus", () => at < 0 && tell(0));
    drawing.addEventListener("blur", quiet);
    drawing.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const series = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) tell((at + step + points.length) % points.length);
      if (series) {
        const other = (all.indexOf(points[Math.max(at, 0)].series) + series + all.length) % all.length;
        tell(points.findIndex((each) => each.series === all[other]));
      }
      if (step || series) event.preventDefault();
    });
  };
  for (const figure of document.querySelectorAll("figure[data-name]")) {
    const all = data.points?.[figure.dataset.name];
    if (all) telling(figure, all);
  }
  return { data, address, element, save };
})();
