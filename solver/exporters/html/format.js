// Numbers and words.

const grouped = new Intl.NumberFormat("en");
const count = (number) => grouped.format(number);

/** 21,613,184 bytes as "20.6 MiB"; exact where it is small. */
function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const sign = bytes < 0 ? "−" : "";
  let rest = Math.abs(bytes);
  let k = 0;
  while (rest >= 1024 && k < units.length - 1) {
    rest /= 1024;
    k += 1;
  }
  const digits = k === 0 || rest >= 100 ? 0 : rest >= 10 ? 1 : 2;
  return `${sign}${rest.toFixed(digits)} ${units[k]}`;
}

const signed = (bytes) => (bytes > 0 ? `+${size(bytes)}` : size(bytes));
const percent = (share) => `${(100 * share).toFixed(Math.abs(share) < 0.0995 ? 1 : 0)} %`;
const words = (text) => text.replaceAll("_", " ");

/** An element with attributes, or listeners where the value is a function, and children. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** A small square of a colour. Styles are set by script: the policy of the page allows no attribute. */
function swatch(colour) {
  const made = element("span", { class: "swatch", "aria-hidden": "true" });
  made.style.background = colour;
  return made;
}

/** A long name that may be broken where it has a joint. */
function breakable(text) {
  const made = document.createDocumentFragment();
  text.split(/(?<=[.:@_(])/).forEach((part, k) => made.append(...(k ? [document.createElement("wbr"), part] : [part])));
  return made;
}

const byId = (id) => document.getElementById(id);

/** Round numbers (1, 2 or 5 times a power of `base` parts) between low and high, about `wanted` of them. */
function ticks(low, high, wanted, unit = 1) {
  const rough = Math.max((high - low) / wanted / unit, 1e-9);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough * (1 - 1e-9)) * unit;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9) + 0; k * step <= high + step * 1e-9; k += 1) found.push(k * step + 0);
  return found;
}

/** Bytes on an axis, in its unit. */
const onAxis = (bytes, unit, name) => (bytes ? `${count(+(bytes / unit).toFixed(3))} ${name}` : "0");

/** The unit in which a range of bytes is written on an axis. */
function unitOf(bytes) {
  for (const [unit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (bytes >= 4 * unit) return [unit, name];
  }
  return [1, "B"];
}
