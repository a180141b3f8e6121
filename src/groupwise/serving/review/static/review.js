// Keys press the buttons that name them; what became of a request is said.
"use strict";

let isAsking = false;

function findButton(event) {
  // An input method may hide the letter; the place of the key is known all the same.
  const key = event.key.length === 1 ? event.key : event.code.replace(/^(Key|Digit|Numpad)/, "");
  const buttons = [...document.querySelectorAll("button[data-key]")];
  return buttons.find((one) => one.dataset.key === key.toLowerCase());
}

document.addEventListener("keydown", (event) => {
  const isCommand = event.ctrlKey || event.altKey || event.metaKey;
  if (isAsking || event.repeat || isCommand || event.target.closest("input, textarea")) return;
  const button = findButton(event);
  if (!button) return;
  event.preventDefault();
  button.click();
});

function tell(text) {
  document.getElementById("told").textContent = text;
}

document.addEventListener("htmx:beforeRequest", () => {
  isAsking = true;
});
document.addEventListener("htmx:afterRequest", () => {
  isAsking = false;
});
document.addEventListener("htmx:afterSwap", () => {
  document.querySelector("#question h2").focus();
  window.scrollTo(0, 0);
});
document.addEventListener("htmx:responseError", (event) => tell(event.detail.xhr.responseText));
document.addEventListener("htmx:sendError", () => {
  tell(document.getElementById("told").dataset.offline);
});
