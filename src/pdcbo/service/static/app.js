// Keeps a study's page live: the journal's stream says that something happened, the server says what there is to see.
"use strict";

const main = document.getElementById("main");
const study = main.dataset.study;
const KINDS = ["created", "ask", "tell", "fail", "correct", "observe", "limits", "guards", "pause", "resume", "known-good", "return"];

function themed(layout) {
  const style = getComputedStyle(document.documentElement);
  const text = style.getPropertyValue("--text").trim();
  const narrow = main.clientWidth < 560;
  const copy = { ...layout, autosize: true, font: { ...layout.font, color: text }, hoverlabel: { font: { size: 12 } } };
  if (narrow) copy.margin = { ...layout.margin, l: 48, r: 8 };
  return copy;
}

function draw(name, figure) {
  const place = document.getElementById(name);
  if (!place) return;
  place.hidden = !figure;
  if (!figure) return;
  place.style.minHeight = `${figure.layout.height + 12}px`;
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", figure.layout.title.text);
  Plotly.react(place, figure.data, themed(figure.layout), { responsive: true, displaylogo: false, displayModeBar: false });
}

async function get(path, kind) {
  const answer = await fetch(path, { headers: { Accept: kind === "json" ? "application/json" : "text/html" } });
  if (answer.status === 401 || answer.redirected) location.assign("/login");
  if (!answer.ok) return null;
  return kind === "json" ? answer.json() : answer.text();
}

let running = false, again = false, stream = null;
async function refresh() {
  if (running) { again = true; return; }
  running = true;
  try {
    const base = `/api/v1/studies/${encodeURIComponent(study)}`;
    const text = await get(`/studies/${encodeURIComponent(study)}/status`, "html");
    if (text !== null) document.getElementById("status").innerHTML = text;
    const figures = await get(`${base}/figures`, "json");
    if (figures) for (const place of document.querySelectorAll(".plot")) if (place.id !== "posterior") draw(place.id, figures[place.id]);
    draw("posterior", await get(`${base}/figures/posterior`, "json"));
    if (text !== null && stream?.readyState === EventSource.OPEN) live(true);
  } catch (error) {
    live(false);
  } finally {
    // Watching must not slow the plant down: at most one look a second.
    setTimeout(() => { running = false; if (again) { again = false; refresh(); } }, 1000);
  }
}

function live(on) {
  const sign = document.getElementById("live");
  sign.className = on ? "live on" : "live off";
  sign.textContent = on ? "live" : "connection lost, trying again";
}

function watch() {
  stream = new EventSource(`/api/v1/studies/${encodeURIComponent(study)}/stream`);
  stream.onopen = () => { live(true); refresh(); };
  stream.onerror = () => {
    live(false);
    // A lost connection the browser opens again by itself, but not one that was answered with an error.
    if (stream.readyState === EventSource.CLOSED) setTimeout(watch, 2000);
  };
  for (const kind of KINDS) stream.addEventListener(kind, refresh);
}

async function order(button) {
  const reason = document.getElementById("reason").value;
  const said = document.getElementById("said");
  said.textContent = `${button.textContent}: sent ...`;
  try {
    const answer = await fetch(`/api/v1/studies/${encodeURIComponent(study)}/${button.dataset.order}`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ reason }),
    });
    const body = await answer.json();
    said.textContent = answer.ok ? `${button.textContent}: on record.` : body.error;
  } catch (error) {
    said.textContent = `${button.textContent}: no answer. It may not be on record; look at the events and repeat it.`;
  }
  refresh();
}

if (study) {
  for (const button of document.querySelectorAll("[data-order]")) button.addEventListener("click", () => order(button));
  document.getElementById("orders").addEventListener("submit", (event) => event.preventDefault());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
  window.addEventListener("load", watch);
  setInterval(refresh, 15000);
} else {
  setInterval(() => location.reload(), 15000);
}
