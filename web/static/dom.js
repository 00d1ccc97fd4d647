// What pages are made of. Text is always text: nothing here reads HTML.
const svgNS = "http://www.w3.org/2000/svg";

function fill(el, attrs, children) {
	for (const [k, v] of Object.entries(attrs || {})) {
		if (v === undefined || v === null || v === false) continue;
		if (k.startsWith("on")) el.addEventListener(k.slice(2), v);
		else if (k === "value") el.value = v;
		else el.setAttribute(k, v === true ? "" : String(v));
	}
	for (const c of children.flat(Infinity)) {
		if (c === undefined || c === null || c === false) continue;
		el.append(c instanceof Node ? c : document.createTextNode(String(c)));
	}
	return el;
}
export const h = (name, attrs, ...children) => fill(document.createElement(name), attrs, children);
export const s = (name, attrs, ...children) => fill(document.createElementNS(svgNS, name), attrs, children);

export function span(ms) {
	const neg = ms < 0; ms = Math.abs(ms);
	const t = ms < 1000 ? `${Math.round(ms)} ms` : ms < 60e3 ? `${(ms / 1000).toFixed(ms < 1e4 ? 1 : 0)} s` : ms < 3600e3 ? `${Math.round(ms / 60e3)} min`
		: ms < 48 * 3600e3 ? `${(ms / 3600e3).toFixed(1)} h` : `${Math.round(ms / 86400e3)} d`;
	return neg ? "−" + t : t;
}
export const ago = (t, now) => t ? `${span(new Date(now) - new Date(t))} ago` : "";
export const time = (t) => t ? h("time", { datetime: t, title: t }, new Date(t).toLocaleString()) : "";
export const number = (n) => n.toLocaleString();
export const chip = (status) => h("span", { class: `chip c-${status}` }, status.replaceAll("_", " "));
export const link = (id, text) => h("a", { href: `#/executions/${id}` }, text || h("code", {}, id.slice(-12)));
export const query = (o) => {
	const q = new URLSearchParams();
	for (const [k, v] of Object.entries(o)) for (const x of [v].flat()) if (x !== undefined && x !== null && x !== "") q.append(k, x);
	return q.toString();
};
export const table = (heads, rows, empty) => rows.length === 0 ? h("p", { class: "soft" }, empty) : h("table", {},
	h("thead", {}, h("tr", {}, heads.map((x) => h("th", { scope: "col", class: x.n ? "n" : undefined }, x.n || x)))),
	h("tbody", {}, rows.map((r) => h("tr", {}, r.map((c, i) => h("td", { class: heads[i].n ? "n" : heads[i] === "Error" || heads[i] === "Why" || heads[i] === "Detail" ? "msg" : undefined }, c))))));
