// A table or a drawing that scrolls sideways can be reached and scrolled by keyboard.
addEventListener("load", () => {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .drawing")) {
    box.tabIndex = 0;
  }
});
