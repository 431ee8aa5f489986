"use strict";
// A button under every table puts it on the clipboard as CSV. Without scripts the page lacks the buttons, nothing else.
for (const table of document.querySelectorAll("table")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy as CSV";
  button.addEventListener("click", async () => {
    const cell = (one) => {
      const text = one.textContent.trim().replace(/\s+/g, " ");
      return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const text = [...table.rows].map((row) => [...row.cells].map(cell).join(",")).join("\n") + "\n";
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Where a page may not write there by itself, it may copy what is selected.
      const field = document.createElement("textarea");
      field.value = text;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy as CSV"; }, 2000);
  });
  table.closest(".wide").after(button);
}
