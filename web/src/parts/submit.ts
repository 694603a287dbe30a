// Ctrl-Enter sends the form of a field in which Enter begins a line.
addEventListener("keydown", (e) => {
  if (e.key !== "Enter" || !(e.ctrlKey || e.metaKey) || e.isComposing || !(e.target instanceof HTMLTextAreaElement)) return;
  const send = e.target.form?.querySelector<HTMLButtonElement>("button[type=submit]");
  if (!send) return;
  e.preventDefault();
  send.click(); // which does nothing if the button is disabled
});
