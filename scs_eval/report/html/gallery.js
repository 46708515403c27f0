// The gallery: cards to filter and sort, and an image with all models' maps seen large.
(() => {
  const { data, address, element, save } = page;
  const shown = data.gallery;
  if (!shown) return;
  const get = (id) => document.getElementById(id);
  for (const entry of shown.entries) {
    entry.predictions = entry.predictions.map((values, i) =>
      Object.fromEntries([["model", shown.models[i]], ...shown.fields.map((field, place) => [field, values[place]])]));
  }
  const BOXES = { kind: Object.keys(shown.kinds)[0], class: "", same: "", wrong: "", sort: "place" };
  const models = shown.entries[0].predictions.length;
  const percent = (share) => `${(100 * share).toFixed(1)} %`;

  // One rule a sheet: a tile is an element whose background is moved to its place.
  const style = element("style");
  document.head.append(style);
  const sheets = { image: [shown.images], ...shown.sheets };
  for (const [kind, some] of Object.entries(sheets)) {
    some.forEach((sheet, i) => sheet && style.sheet.insertRule(
      `.${kind}-${i}{background-image:url("${sheet.uri}");background-size:${100 * sheet.columns}% ${100 * sheet.rows}%}`));
  }
  const share = (part, count) => (count > 1 ? (100 * part) / (count - 1) : 0);
  const tile = (kind, i, place, words) => {
    const sheet = sheets[kind][i];
    const made = element("div", { className: `tile ${kind}-${i}`, role: "img", ariaLabel: words });
    made.style.backgroundPosition =
      `${share(place % sheet.columns, sheet.columns)}% ${share(Math.floor(place / sheet.columns), sheet.rows)}%`;
    return made;
  };
  const modelName = (i) => {
    const { colour, ink, number } = data.models[i];
    const mark = element("i", { className: number ? "number" : "", textContent: number });
    Object.assign(mark.style, { background: colour, color: ink });
    return element("span", { className: "model" }, mark, element("span", { textContent: shown.entries[0].predictions[i].model }));
  };

  const maps = (prediction, m, place) => Object.keys(shown.kinds).map((kind) => {
    const made = sheets[kind][m]
      ? tile(kind, m, place, `${kind} of ${prediction.model}: ${prediction.predicted}`)
      : element("span", { className: "none", textContent: `no ${kind}` });
    made.classList.add("map");
    made.dataset.kind = kind;
    return made;
  });
  const card = (entry, place) => {
    const alike = entry.agreement === null ? "" : `maps rₛ ${entry.agreement.toFixed(2)}`;
    const open = element("button", { type: "button", className: "open", ariaLabel: `Image ${entry.index}, ${entry.truth}: see it large` },
      tile("image", 0, place, `image ${entry.index}: ${entry.truth}`));
    const first = element("div", { className: "shot" }, open, element("b", { textContent: entry.truth }),
      element("small", { textContent: `#${entry.index}` }), element("small", { textContent: alike }));
    const shots = entry.predictions.map((prediction, m) => element("div", { className: `shot${prediction.right ? "" : " wrong"}` },
      ...maps(prediction, m, place),
      element("b", { textContent: `${prediction.right ? "✓" : "✗"} ${prediction.predicted}` }),
      element("small", {}, modelName(m)), element("small", { textContent: prediction.breaks })));
    const article = element("article", {}, first, ...shots);
    Object.assign(article.dataset, { place, index: entry.index });
    return article;
  };
  const list = get("entries");
  const articles = shown.entries.map(card);
  const entryOf = (article) => shown.entries[Number(article.dataset.place)];

  // Filters and order.
  const wrong = (entry) => entry.predictions.flatMap((prediction, i) => (prediction.right ? [] : [String(i)]));
  const alike = (entry, none) => entry.agreement ?? none;
  const orders = {
    place: () => 0,
    class: (a, b) => a.truth.localeCompare(b.truth),
    apart: (a, b) => alike(a, 2) - alike(b, 2),
    alike: (a, b) => alike(b, -2) - alike(a, -2),
    wrong: (a, b) => wrong(b).length - wrong(a).length,
  };
  const isWrong = (entry, who) => {
    const found = wrong(entry);
    if (who === "") return true;
    if (who === "none") return found.length === 0;
    if (who === "any") return found.length > 0;
    if (who === "all") return found.length === models;
    if (who.startsWith("only ")) return found.length === 1 && found[0] === who.slice(5);
    return found.includes(who);
  };
  const same = (entry) => (new Set(entry.predictions.map((prediction) => prediction.predicted)).size === 1 ? "yes" : "no");
  const fits = (entry) =>
    (get("class").value === "" || entry.truth === get("class").value) &&
    (get("same").value === "" || same(entry) === get("same").value) &&
    isWrong(entry, get("wrong").value);
  let visible = [];
  const update = () => {
    const order = orders[get("sort").value];
    const sorted = [...articles].sort((a, b) => order(entryOf(a), entryOf(b)) || Number(a.dataset.place) - Number(b.dataset.place));
    for (const article of sorted) article.hidden = !fits(entryOf(article));
    list.append(...sorted);
    const kind = get("kind").value;
    document.querySelectorAll(".map, .kind-note").forEach((each) => { each.hidden = each.dataset.kind !== kind; });
    visible = sorted.filter((article) => !article.hidden);
    get("shown").textContent = `${visible.length} of ${articles.length} images`;
    get("nothing").hidden = visible.length > 0;
  };

  // Large: levels of a map are read back from its colours, so that all models can be shown on one scale.
  const loaded = new Map();
  const picture = async (uri) => {
    if (!loaded.has(uri)) {
      const image = new Image();
      image.src = uri;
      loaded.set(uri, image.decode().then(() => image));
    }
    return loaded.get(uri);
  };
  const pixels = async (sheet, place) => {
    const image = await picture(sheet.uri);
    const side = image.naturalWidth / sheet.columns;
    const canvas = element("canvas", { width: side, height: side });
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(image, (place % sheet.columns) * side, Math.floor(place / sheet.columns) * side, side, side, 0, 0, side, side);
    return { canvas, context, read: context.getImageData(0, 0, side, side) };
  };
  const code = (r, g, b) => (r << 16) | (g << 8) | b;
  const rescaled = async (kind, sheet, place, largest) => {
    const { canvas, context, read } = await pixels(sheet, place);
    const palette = shown.palettes[kind];
    const middle = kind === "contributions" ? (palette.length - 1) / 2 : 0;
    const levels = new Map(palette.map((colour, level) => [code(...colour), level]));
    const factor = largest > 0 ? sheet.scales[place] / largest : 0;
    for (let i = 0; i < read.data.length; i += 4) {
      const level = levels.get(code(read.data[i], read.data[i + 1], read.data[i + 2])) ?? middle;
      read.data.set(palette[Math.round(middle + (level - middle) * factor)], i);
    }
    context.putImageData(read, 0, 0);
    return canvas;
  };
  const attacked = async (m, place) => {
    const sheet = sheets.changes[m];
    const clean = await pixels(shown.images, place);
    const change = await pixels(sheet, place);
    const step = Math.floor(127 / shown.steps);
    for (let i = 0; i < clean.read.data.length; i += 1) {
      if (i % 4 === 3) continue;
      const moved = ((change.read.data[i] - 128) / (step * shown.steps)) * sheet.scales[place];
      clean.read.data[i] = Math.round(clean.read.data[i] + 255 * moved); // a byte: cut at 0 and 255
    }
    clean.context.putImageData(clean.read, 0, 0);
    return [clean.canvas, change.canvas];
  };
  const framed = (canvas, words, alt) => {
    Object.assign(canvas, { role: "img", ariaLabel: alt || words });
    return element("figure", {}, canvas, element("figcaption", { textContent: words }));
  };
  const digits = (value) => value.toPrecision(3).replace("-", "−");

  const largeModel = async (entry, place, m, scale) => {
    const prediction = entry.predictions[m];
    const figures = [];
    for (const kind of Object.keys(shown.kinds)) {
      const sheet = sheets[kind][m];
      if (!sheet) continue;
      const mapped = kind in shown.palettes;
      const all = mapped ? sheets[kind].filter(Boolean).map((each) => each.scales[place]) : [];
      const full = mapped ? (scale === "shared" ? Math.max(...all) : sheet.scales[place]) : 0;
      const canvas = mapped ? await rescaled(kind, sheet, place, full) : (await pixels(sheet, place)).canvas;
      figures.push(framed(canvas, `${kind}${mapped ? `; full colour: ${digits(full)}` : ""}`, `${kind} of ${prediction.model}`));
    }
    if (sheets.changes[m] && prediction.attacked && place < sheets.changes[m].scales.length) {
      const [image, change] = await attacked(m, place);
      figures.push(framed(image, `attacked: ${prediction.attacked}`, `the attacked image, which ${prediction.model} takes for ${prediction.attacked}`));
      figures.push(framed(change, `the change; full colour: ${digits(255 * sheets.changes[m].scales[place])}/255`, "what the attack added, magnified"));
    }
    const chances = element("ul", { className: "chances" }, ...prediction.likeliest.map(([name, chance]) => {
      const bar = element("span", { className: "bar" });
      bar.style.width = `${100 * chance}%`; // without a space, or it counts for nothing
      return element("li", { className: name === entry.truth ? "true" : "" }, element("span", { textContent: `${name} ${percent(chance)}` }), bar);
    }));
    const lines = [prediction.breaks, prediction.adds_up].filter(Boolean).map((text) => element("p", { textContent: text }));
    return element("section", { className: "large-model" },
      element("h3", {}, modelName(m), element("span", { className: prediction.right ? "" : "wrong", textContent: ` ${prediction.right ? "✓" : "✗"} ${prediction.predicted}` })),
      element("div", { className: "large-maps" }, ...figures), element("div", { className: "large-words" }, chances, ...lines));
  };
  const dialog = get("large");
  let ticket = 0;
  const fill = async (index) => {
    const mine = ++ticket;
    const article = articles.find((each) => each.dataset.index === index);
    if (!article) { if (dialog.open) dialog.close(); return; }
    const [entry, place] = [entryOf(article), Number(article.dataset.place)];
    const at = visible.indexOf(article);
    get("large-title").textContent = `#${entry.index}: ${entry.truth}`;
    const where = at < 0 ? "not among the images that the filters show" : `image ${at + 1} of ${visible.length}`;
    const right = entry.predictions.filter((prediction) => prediction.right).length;
    get("large-note").textContent = `${where}; ${right} of ${models} models are right${entry.agreement === null ? "" : `; their maps' mean rank correlation is ${entry.agreement.toFixed(2)}`}`;
    const scale = get("scale").value;
    const clean = framed((await pixels(shown.images, place)).canvas, "image", `image ${entry.index}: ${entry.truth}`);
    clean.className = "clean";
    const parts = await Promise.all(entry.predictions.map((_, m) => largeModel(entry, place, m, scale)));
    if (mine !== ticket) return; // another image was asked for meanwhile
    get("large-body").replaceChildren(clean, element("div", {}, ...parts));
    if (!dialog.open) dialog.showModal();
    dialog.dataset.index = index;
  };
  const open = (article, push) => { address.set({ image: article.dataset.index }, { push }); fill(article.dataset.index); };
  const move = (step) => {
    if (!visible.length) return;
    const at = visible.findIndex((article) => article.dataset.index === dialog.dataset.index);
    open(visible[at < 0 ? 0 : (at + step + visible.length) % visible.length], false);
  };
  list.addEventListener("click", (event) => {
    const article = event.target.closest("article");
    if (article) { article.querySelector(".open").focus(); open(article, true); }
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.target.tagName === "SELECT") return;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) { event.preventDefault(); move(step); }
  });
  dialog.addEventListener("close", () => {
    ticket += 1;
    address.set({ image: "" });
    articles.find((article) => article.dataset.index === dialog.dataset.index)?.querySelector(".open").focus();
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  get("previous").addEventListener("click", () => move(-1));
  get("next").addEventListener("click", () => move(1));
  get("close").addEventListener("click", () => dialog.close());
  get("scale").addEventListener("change", () => {
    address.set({ scale: get("scale").value === "own" ? "" : get("scale").value });
    fill(dialog.dataset.index);
  });
  // The open view as one picture: rows of models, large pixels, words below each map.
  get("save-large").addEventListener("click", () => {
    const SIDE = 192, GAP = 12, LINE = 34;
    const rows = [...dialog.querySelectorAll(".clean, .large-model")].map((part) => ({
      title: part.querySelector("h3")?.textContent ?? get("large-title").textContent,
      figures: part.matches("figure") ? [part] : [...part.querySelectorAll("figure")],
    }));
    const width = Math.max(...rows.map((row) => row.figures.length)) * (SIDE + GAP) + GAP;
    const canvas = element("canvas", { width, height: rows.length * (SIDE + 2 * LINE) + GAP });
    const context = canvas.getContext("2d");
    context.fillStyle = "#fff";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.imageSmoothingEnabled = false;
    rows.forEach(({ title, figures }, r) => {
      const top = r * (SIDE + 2 * LINE) + LINE;
      context.fillStyle = "#000";
      context.font = "bold 15px sans-serif";
      context.fillText(title, GAP, top - 10);
      context.font = "12px sans-serif";
      figures.forEach((figure, c) => {
        const left = GAP + c * (SIDE + GAP);
        context.drawImage(figure.querySelector("canvas"), left, top, SIDE, SIDE);
        context.fillText(figure.textContent, left, top + SIDE + 16, SIDE);
      });
    });
    canvas.toBlob((blob) => save(`image-${dialog.dataset.index}.png`, blob));
  });

  const controls = get("controls");
  controls.hidden = false;
  controls.addEventListener("submit", (event) => event.preventDefault());
  controls.addEventListener("change", () => {
    address.set(Object.fromEntries(Object.entries(BOXES).map(([id, usual]) => [id, get(id).value === usual ? "" : get(id).value])));
    update();
  });
  const choose = (box, value) => { box.value = value; if (box.selectedIndex < 0) box.selectedIndex = 0; };
  address.readers.push(() => {
    for (const [id, usual] of Object.entries(BOXES)) choose(get(id), address.get(id) || usual);
    choose(get("scale"), address.get("scale") || "own");
    update();
    fill(address.get("image"));
  });
})();
page.address.read();
page.address.show();
