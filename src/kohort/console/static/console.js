// Keeps an open page as it is in the cluster: events say that something has changed, the page is read again, and those
// parts that look different are put in their places. Without scripts every page and form works, and is not live.
"use strict";

const live = document.getElementById("live");
const events = document.body.dataset.events;
const HURRY_MS = 50;
let timer = 0, isReading = false, isWanted = false, isPaused = false;

function say(text) {
  if (live && live.textContent !== text) live.textContent = text;
}

// The same element as before, in a part that was replaced: by its address, or its name in a form.
function keyOf(element) {
  return element && (element.getAttribute("href") || element.getAttribute("aria-label") || element.name || "");
}

function replace(part, fresh) {
  if (part.innerHTML === fresh.innerHTML) return;
  const focused = part.contains(document.activeElement) ? keyOf(document.activeElement) : "";
  const scrolled = [...part.querySelectorAll(".wide")].map((each) => each.scrollLeft);
  part.replaceChildren(...fresh.childNodes);
  part.querySelectorAll(".wide").forEach((each, at) => { each.scrollLeft = scrolled[at] || 0; });
  if (focused) {
    const again = [...part.querySelectorAll("a, button, input, select, [tabindex]")].find((each) => keyOf(each) === focused);
    if (again) again.focus({ preventScroll: true });
  }
}

async function read() {
  if (isReading) { isWanted = true; return; }
  isReading = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "error" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!isPaused) {
      for (const part of document.querySelectorAll("[data-live]")) {
        const fresh = page.querySelector(`[data-live="${part.dataset.live}"]`);
        if (fresh) replace(part, document.adoptNode(fresh));
      }
    }
    say(answer.ok ? "live" : "not live: reload the page");
  } catch {
    say("not live: the console does not answer");
  } finally {
    isReading = false;
    if (isWanted) { isWanted = false; soon(); }
  }
}

function soon() {
  clearTimeout(timer);
  if (document.hidden) { isWanted = true; return; }
  timer = setTimeout(read, HURRY_MS);
}

if (events && new URL(location.href).searchParams.get("to") === null) {
  const source = new EventSource(events);
  source.addEventListener("open", () => { say("live"); soon(); });
  source.addEventListener("row", soon);
  source.addEventListener("look", soon);
  source.addEventListener("error", () => {
    say(source.readyState === EventSource.CLOSED ? "not live: reload the page" : "not live: connecting again");
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && isWanted) { isWanted = false; soon(); }
  });
}

// Dragging over the picture of owners shows that span of time; Escape ends it.
document.addEventListener("pointerdown", (pressed) => {
  const picture = pressed.target.closest && pressed.target.closest("svg.lanes");
  if (!picture || pressed.button !== 0 || pressed.pointerType === "touch" || pressed.target.closest("a")) return;
  const box = picture.getBoundingClientRect();
  const left = Number(picture.dataset.left);
  const from = Number(picture.dataset.from), to = Number(picture.dataset.to);
  const share = (x) => Math.min(1, Math.max(0, ((x - box.left) / box.width - left) / (1 - left)));
  const mark = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const height = picture.viewBox.baseVal.height, width = picture.viewBox.baseVal.width;
  mark.setAttribute("class", "zoom");
  mark.setAttribute("height", height);
  picture.append(mark);
  isPaused = true;
  const place = (share_) => (left + share_ * (1 - left)) * width;
  const began = share(pressed.clientX);
  let ended = began;
  function move(event) {
    ended = share(event.clientX);
    mark.setAttribute("x", place(Math.min(began, ended)));
    mark.setAttribute("width", place(Math.max(began, ended)) - place(Math.min(began, ended)));
  }
  function stop(event) {
    document.removeEventListener("pointermove", move);
    document.removeEventListener("pointerup", stop);
    document.removeEventListener("keydown", stop);
    if (event.type === "keydown" && event.key !== "Escape") { return; }
    mark.remove();
    isPaused = false;
    if (event.type === "keydown" || Math.abs(ended - began) < 0.01) return;
    const address = new URL(location.href);
    address.searchParams.delete("span");
    address.searchParams.set("from", Math.round(from + Math.min(began, ended) * (to - from)));
    address.searchParams.set("to", Math.round(from + Math.max(began, ended) * (to - from)));
    location.href = address.href;
  }
  document.addEventListener("pointermove", move);
  document.addEventListener("pointerup", stop);
  document.addEventListener("keydown", stop);
  pressed.preventDefault();
});
