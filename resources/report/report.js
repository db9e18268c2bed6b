// What answers the pointer in a report: one cursor for all charts on the same clock, the facts of a request, copying.
"use strict";
(() => {
  const tip = document.getElementById("bs-tip");
  const requests = JSON.parse(document.getElementById("bs-requests").textContent);
  const charts = [...document.querySelectorAll(".bs-chart")];
  const number = (chart, name) => Number(chart.dataset[name]);
  const series = new Map(charts.map((c) => [c, c.dataset.lines ? JSON.parse(c.dataset.lines) : []]));
  for (const title of document.querySelectorAll(".bs-cell title")) title.remove();  // the tip says more

  const seconds = (s) => (Math.abs(s) < 0.9995 ? `${(s * 1e3).toPrecision(3) * 1} ms` : `${s.toFixed(2)} s`);
  const amount = (v) => v.toLocaleString("en", { maximumFractionDigits: Math.abs(v) < 10 ? 1 : 0 });
  const at = (chart, x) => {
    const [left, right, begin, end] = ["left", "right", "begin", "end"].map((n) => number(chart, n));
    return begin + Math.min(1, Math.max(0, (x - left) / (right - left))) * (end - begin);
  };
  const place = (chart, value) => {
    const [left, right, begin, end] = ["left", "right", "begin", "end"].map((n) => number(chart, n));
    return left + ((value - begin) / (end - begin)) * (right - left);
  };
  const last = (xs, x) => {  // the place of the last that is not beyond x
    let low = -1, high = xs.length - 1;
    while (low < high) { const middle = (low + high + 1) >> 1; if (xs[middle] <= x) low = middle; else high = middle - 1; }
    return low;
  };

  function point(chart, value) {
    for (const other of charts) {
      const cursor = other.querySelector(".bs-cursor");
      const shown = other === chart || (!other.dataset.scale && !chart.dataset.scale && value <= number(other, "end"));
      cursor.classList.toggle("on", shown);
      if (shown) cursor.setAttribute("transform", `translate(${place(other, value).toFixed(1)} 0)`);
    }
  }
  function light(chart, request) {
    for (const other of charts) {
      other.classList.toggle("bs-lit", request !== undefined && other === chart);
      if (other !== chart) continue;
      for (const cell of other.querySelectorAll(".bs-cell")) cell.classList.toggle("on", cell.dataset.request === request);
    }
  }
  function words(chart, value, cell, slot) {
    const log = chart.dataset.scale === "log";
    const said = [log ? `up to ${seconds(10 ** value)}` : `${value.toFixed(3)} s`];
    for (const line of series.get(chart)) {
      const i = last(line.x, value);
      said.push(`${line.name}: ${i < 0 ? "–" : amount(line.y[i])}${log ? " %" : ""}`);
    }
    if (cell) {
      const [lane, request] = [chart.dataset.lane ?? 0, cell.dataset.request];
      said[0] = `#${request} · ${cell.dataset.does} · slot ${slot} · ${said[0]}`;
      const known = requests[lane]?.[request];
      if (known) said.push(known);
    }
    return said.join("\n");
  }
  function say(text, x, y) {
    tip.textContent = text;
    tip.style.display = "block";
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18}px`;
  }
  function leave() {
    tip.style.display = "none";
    for (const chart of charts) {
      chart.querySelector(".bs-cursor").classList.remove("on");
      chart.classList.remove("bs-lit");
    }
  }
  function ask(chart, clientX, clientY, target) {
    const box = chart.getBoundingClientRect(), view = chart.viewBox.baseVal;
    const value = at(chart, ((clientX - box.left) / box.width) * view.width);
    const y = ((clientY - box.top) / box.height) * view.height;
    const cell = target?.closest?.(".bs-cell");
    point(chart, value);
    light(chart, cell?.dataset.request);
    say(words(chart, value, cell, Math.floor((y - number(chart, "top")) / number(chart, "high"))), clientX, clientY);
    chart.dataset.now = value;
  }
  for (const chart of charts) {
    chart.tabIndex = 0;
    chart.addEventListener("pointermove", (e) => ask(chart, e.clientX, e.clientY, e.target));
    chart.addEventListener("pointerleave", leave);
    chart.addEventListener("blur", leave);
    chart.addEventListener("keydown", (e) => {
      if (e.key === "Escape") return leave();
      const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (!step) return;
      e.preventDefault();
      const [begin, end] = [number(chart, "begin"), number(chart, "end")];
      const value = Math.min(end, Math.max(begin, Number(chart.dataset.now ?? begin) + (step * (end - begin)) / 100));
      const box = chart.getBoundingClientRect();
      ask(chart, box.left + (place(chart, value) / chart.viewBox.baseVal.width) * box.width, box.top + 8, null);
    });
  }
  for (const button of document.querySelectorAll("button[data-copy]"))
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
  addEventListener("beforeprint", () => {
    leave();
    for (const each of document.querySelectorAll("details[data-print]")) each.open = true;
  });
})();
