"use strict";
// The filters of a page: items carry data-item and one data attribute a select; without this script all are shown.
for (const form of document.querySelectorAll("form.filter")) {
  const items = [...document.querySelectorAll("[data-item]")];
  const groups = [...document.querySelectorAll("[data-group]")];
  const selects = [...form.querySelectorAll("select")];
  const search = form.querySelector("input");
  const said = form.querySelector("output");
  const texts = new Map();
  const text = (item) => {
    if (!texts.has(item)) texts.set(item, item.textContent.toLowerCase());
    return texts.get(item);
  };
  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = selects.filter((select) => select.value);
    let shown = 0;
    for (const item of items) {
      const fits = chosen.every((select) => (item.dataset[select.name] ?? "").split("|").includes(select.value))
        && words.every((word) => text(item).includes(word));
      item.hidden = !fits;
      shown += fits;
    }
    for (const group of groups) group.hidden = !group.querySelector("[data-item]:not([hidden])");
    said.textContent = `${shown} of ${items.length} ${said.dataset.what}`;
  };
  let waiting;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(apply, 120); });
  for (const select of selects) select.addEventListener("change", apply);
  form.addEventListener("submit", (event) => { event.preventDefault(); apply(); });
  form.hidden = false;
  apply();
}
