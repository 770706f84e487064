"use strict";
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    const said = button.textContent;
    button.textContent = (await copied(source)) ? "Copied" : "Press Ctrl+C";
    setTimeout(() => { button.textContent = said; }, 1600);
  });
}
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
// The clipboard is closed to pages from disk in some browsers; then the text is selected for the reader.
async function copied(source) {
  try {
    await navigator.clipboard.writeText(source.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(source);
    return document.execCommand("copy");
  }
}
