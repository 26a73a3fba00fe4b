"use strict";
// Colours the drawn nodes by family or by place, and shows the details of the one that is chosen.

const nodes = JSON.parse(document.getElementById("data").textContent).nodes;
const $ = (id) => document.getElementById(id);
const drawn = new Map(Array.from(document.querySelectorAll("[data-node]"), (one) => [Number(one.dataset.node), one]));
const sections = Array.from(document.querySelectorAll("[data-section]"));
for (const one of sections) one.dataset.family = one.firstElementChild.getAttribute("class");
let chosen = null;

function colour(by) {
  const family = by === "family";
  for (const [number, one] of drawn) {
    const place = nodes[number].places[by];
    one.setAttribute("class", family ? `n ${nodes[number].family}` : `n at-${place ? place[0] : "unknown"}`);
  }
  for (const one of sections) {
    const within = nodes.slice(Number(one.dataset.first), Number(one.dataset.end)).map((node) => node.places[by]?.[0]);
    const worst = ["refused", "host", "device"].find((place) => within.includes(place));
    one.firstElementChild.setAttribute("class", family ? one.dataset.family : `n at-${worst ?? "unknown"}`);
  }
  for (const legend of document.querySelectorAll("[data-legend]"))
    legend.hidden = (legend.dataset.legend === "family") !== family;
}

function line(list, heading, text) {
  const term = document.createElement("dt"), value = document.createElement("dd");
  term.textContent = heading;
  value.textContent = text;
  list.append(term, value);
}

function choose(number) {
  drawn.get(chosen)?.removeAttribute("aria-pressed");
  chosen = number;
  const panel = $("node");
  panel.hidden = number === null;
  if (number === null) return;
  drawn.get(number).setAttribute("aria-pressed", "true");
  const node = nodes[number], head = document.createElement("header"), title = document.createElement("h2");
  const close = document.createElement("button"), list = document.createElement("dl");
  title.textContent = node.name;
  close.type = "button";
  close.textContent = "close";
  close.addEventListener("click", () => choose(null));
  head.append(title, close);
  for (const [heading, text] of Object.entries(node.details)) line(list, heading, text);
  for (const [target, [place, why]] of Object.entries(node.places)) line(list, target, why ? `${place}: ${why}` : place);
  panel.replaceChildren(head, list);
}

function show(number) {
  const one = drawn.get(number);
  one.closest("details").open = true;
  one.scrollIntoView({ block: "center", inline: "center" });
  choose(number);
}

document.addEventListener("click", (event) => {
  const node = event.target.closest("[data-node]"), row = event.target.closest("button.layer");
  const section = event.target.closest("[data-section]");
  if (node) choose(Number(node.dataset.node));
  if (row) show(Number(row.closest("tr").dataset.row));
  if (section) $(`s${section.dataset.section}`).open = true;
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") choose(null);
  if ((event.key === "Enter" || event.key === " ") && event.target.dataset?.node) {
    event.preventDefault();
    choose(Number(event.target.dataset.node));
  }
});
for (const radio of document.querySelectorAll("input[name=colour]"))
  radio.addEventListener("change", () => colour(radio.value));
for (const [id, open] of [["open-all", true], ["close-all", false]])
  $(id).addEventListener("click", () => {
    for (const section of document.querySelectorAll("details.section")) section.open = open;
  });
