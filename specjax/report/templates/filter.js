// Without this script every row is shown, and every link works; it adds the filter, and opens what a link leads to.
const form = document.getElementById("filter");
const { words, paper, status, count } = form.elements;
const each = (selector, change) => document.querySelectorAll(selector).forEach(change);

// The text of a row, its folded part included, is read at the first search.
const texts = new Map();
function has(element, wanted) {
  if (!texts.has(element)) texts.set(element, element.textContent.toLowerCase());
  return wanted.every((word) => texts.get(element).includes(word));
}

function apply() {
  const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  // "theorem 3" is the whole label first: without it, all rows that have both words.
  const label = wanted.join(" ");
  const labelled = (row) => row.querySelector(".label strong").textContent.toLowerCase() === label;
  const exact = label !== "" && [...document.querySelectorAll(".row")].some(labelled);
  let shown = 0;
  each(".paper", (section) => {
    section.hidden = paper.value !== "" && section.dataset.paper !== paper.value;
    section.querySelectorAll(".row").forEach((row) => {
      const found = exact ? labelled(row) : has(row, wanted);
      row.hidden = !found || (status.value !== "" && row.dataset.status !== status.value);
      shown += !row.hidden && !section.hidden;
    });
  });
  each(".fold", (fold) => {
    fold.hidden = fold.querySelector(".row:not([hidden])") === null;
    fold.open = status.value === "not judged" || label !== "";
  });
  each(".experiment", (run) => (run.hidden = !has(run, wanted)));
  each(".experiments", (part) => {
    part.hidden = status.value !== "" || part.querySelector(".experiment:not([hidden])") === null;
  });
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
form.addEventListener("input", apply);
form.addEventListener("submit", (event) => event.preventDefault());
each(".card a[data-status]", (link) =>
  link.addEventListener("click", () => {
    paper.value = link.closest(".card").querySelector(".title").textContent;
    status.value = link.dataset.status;
    apply();
  })
);
addEventListener("hashchange", reveal);
apply();
reveal();
