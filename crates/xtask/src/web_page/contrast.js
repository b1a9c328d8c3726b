// Texts whose contrast with their background, as WCAG defines it, is too small.
(() => {
  const light = (css) => {
    const parts = css.match(/[\d.]+/g).map(Number);
    const line = (c) => { const s = c / 255; return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4; };
    return [0.2126 * line(parts[0]) + 0.7152 * line(parts[1]) + 0.0722 * line(parts[2]), parts[3] ?? 1];
  };
  const back = (node) => {
    for (; node; node = node.parentElement) {
      const [value, alpha] = light(getComputedStyle(node).backgroundColor);
      if (alpha > 0) return value;
    }
    return 1;
  };
  const bad = [];
  for (const node of document.querySelectorAll("h1, h2, h3, td, th, dt, dd, button, span, time, .name, .value, .note")) {
    if (!node.textContent || !node.offsetParent) continue;
    const [a, b] = [light(getComputedStyle(node).color)[0], back(node)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${node.tagName} ${node.className} ${node.textContent.slice(0, 20)} ${ratio.toFixed(1)}`);
  }
  return bad;
})()
