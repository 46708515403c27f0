"use strict";
(() => {
  const list = document.getElementById("entries");
  if (!list) return;
  const get = (id) => document.getElementById(id);
  const articles = [...list.children];
  const models = articles[0].querySelectorAll(".shot").length - 1;
  const wrong = (article) => article.dataset.wrong.split(" ").filter(Boolean);
  const alike = (article, none) => (article.dataset.alike === "" ? none : Number(article.dataset.alike));
  const place = (article) => Number(article.dataset.place);

  const orders = {
    place: () => 0,
    class: (a, b) => a.dataset.class.localeCompare(b.dataset.class),
    apart: (a, b) => alike(a, 2) - alike(b, 2),
    alike: (a, b) => alike(b, -2) - alike(a, -2),
    wrong: (a, b) => wrong(b).length - wrong(a).length,
  };
  const isWrong = (article, who) => {
    const found = wrong(article);
    if (who === "") return true;
    if (who === "none") return found.length === 0;
    if (who === "any") return found.length > 0;
    if (who === "all") return found.length === models;
    if (who.startsWith("only ")) return found.length === 1 && found[0] === who.slice(5);
    return found.includes(who);
  };
  const fits = (article) =>
    (get("class").value === "" || article.dataset.class === get("class").value) &&
    (get("same").value === "" || article.dataset.same === get("same").value) &&
    isWrong(article, get("wrong").value);

  const update = () => {
    const kind = get("kind").value;
    document.querySelectorAll("[data-kind]").forEach((each) => { each.hidden = each.dataset.kind !== kind; });
    const order = orders[get("sort").value];
    const sorted = [...articles].sort((a, b) => order(a, b) || place(a) - place(b));
    let shown = 0;
    for (const article of sorted) {
      article.hidden = !fits(article);
      shown += article.hidden ? 0 : 1;
      list.append(article);
    }
    get("shown").textContent = `${shown} of ${articles.length} images`;
    get("nothing").hidden = shown > 0;
  };
  const controls = get("controls");
  controls.hidden = false;
  controls.addEventListener("change", update);
  controls.addEventListener("submit", (event) => event.preventDefault());
  controls.reset();
  update();
})();
