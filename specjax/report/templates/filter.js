// Without this script every row is shown, and every link works; it adds the filter, and opens what a link leads to.
const form = document.getElementById("filter");
const { paper, status, count } = form.elements;
const each = (selector, change) => document.querySelectorAll(selector).forEach(change);

function apply() {
  let shown = 0;
  each(".paper", (section) => {
    section.hidden = paper.value !== "" && section.dataset.paper !== paper.value;
    section.querySelectorAll(".row").forEach((row) => {
      row.hidden = status.value !== "" && row.dataset.status !== status.value;
      shown += !row.hidden && !section.hidden;
    });
  });
  each(".fold", (fold) => {
    fold.hidden = fold.querySelector(".row:not([hidden])") === null;
    fold.open = status.value === "not judged";
  });
  each(".experiments", (part) => (part.hidden = status.value !== ""));
  count.value = shown + (shown === 1 ? " row" : " rows");
}

function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target === null || target.matches(".paper")) return;
  form.reset();
  apply();
  for (let place = target; place !== null; place = place.parentElement) {
    if (place.matches("details")) place.open = true;
  }
  const own = target.querySelector(":scope > details");
  if (own !== null) own.open = true;
  target.scrollIntoView();
}

form.hidden = false;
form.addEventListener("change", apply);
each(".card a", (link) =>
  link.addEventListener("click", () => {
    paper.value = link.closest(".card").querySelector(".title").textContent;
    status.value = link.dataset.status;
    apply();
  })
);
addEventListener("hashchange", reveal);
apply();
reveal();
