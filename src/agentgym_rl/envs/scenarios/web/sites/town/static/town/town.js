// Small conveniences of the sites. Every form also works without them.
(() => {
  const token = form => form.querySelector("[name=csrfmiddlewaretoken]").value;
  const send = (form, fields) => fetch(form.action, {
    method: "POST",
    headers: {"X-CSRFToken": token(form), "X-Requested-With": "fetch"},
    body: new URLSearchParams(fields),
  });

  // Votes without loading the page again.
  document.addEventListener("submit", async event => {
    const form = event.target;
    if (form.matches("[data-confirm]") && !confirm(form.dataset.confirm)) {
      event.preventDefault();
      return;
    }
    if (form.matches("[data-vote]")) {
      event.preventDefault();
      const answer = await send(form, {value: event.submitter.value});
      if (answer.redirected) { location.href = answer.url; return; }
      const {score, value} = await answer.json();
      form.querySelector(".score").textContent = score;
      for (const [name, sign] of [[".up", 1], [".down", -1]]) {
        const button = form.querySelector(name);
        button.setAttribute("aria-pressed", String(value === sign));
        button.value = value === sign ? 0 : sign;
      }
    }
    if (form.matches("[data-toggle]")) {
      event.preventDefault();
      const answer = await send(form, {});
      if (answer.redirected) { location.href = answer.url; return; }
      const {on, count} = await answer.json();
      const button = form.querySelector("button");
      const [off_label, on_label] = form.dataset.toggle.split("|");
      button.querySelector("[data-label]") ? button.querySelector("[data-label]").textContent = on ? on_label : off_label
        : button.textContent = on ? on_label : off_label;
      button.classList.toggle("primary", !on);
      const shown = (form.closest("tr") || form).querySelector("[data-count]");
      if (shown) shown.textContent = count;
    }
  });

  // Menus open on a click and close on the next one elsewhere.
  document.addEventListener("click", event => {
    const opener = event.target.closest("[data-menu]");
    for (const button of document.querySelectorAll("[data-menu]")) {
      const list = button.nextElementSibling;
      const show = button === opener && list.hidden;
      list.hidden = !show;
      button.setAttribute("aria-expanded", String(show));
    }
  });

  // Lists that send their form when they change.
  document.addEventListener("change", event => {
    if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  });

  // Tab bars within a page.
  for (const bar of document.querySelectorAll("[role=tablist]")) {
    bar.addEventListener("click", event => {
      const tab = event.target.closest("[role=tab]");
      if (!tab) return;
      for (const one of bar.querySelectorAll("[role=tab]")) {
        one.setAttribute("aria-selected", String(one === tab));
        document.getElementById(one.getAttribute("aria-controls")).hidden = one !== tab;
      }
    });
  }

  // Text to copy.
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", () => {
      document.getElementById(button.dataset.copy).select();
      button.textContent = "Copied";
    });
  }
})();
