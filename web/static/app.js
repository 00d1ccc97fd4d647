import { h } from "./dom.js";
import { get } from "./api.js";
import { mapPage } from "./map.js";
import { listPage } from "./executions.js";
import { executionPage } from "./execution.js";
import { workersPage } from "./workers.js";

const main = document.getElementById("main"), age = document.getElementById("age"), trouble = document.getElementById("trouble");
const poll = document.getElementById("poll"), theme = document.getElementById("theme");
const kept = (k, otherwise) => { try { return localStorage.getItem("leveret." + k) || otherwise; } catch { return otherwise; } };
const keep = (k, v) => { try { localStorage.setItem("leveret." + k, v); } catch { /* a browser that keeps nothing */ } };

let page = null, meta = null, loading = null, timer = 0, got = 0, skew = 0, said = 0;
const dark = matchMedia("(prefers-color-scheme: dark)");
function paint() { document.documentElement.dataset.theme = theme.value === "auto" ? (dark.matches ? "dark" : "light") : theme.value; }
theme.value = kept("theme", "auto"); paint();
theme.addEventListener("change", () => { keep("theme", theme.value); paint(); });
dark.addEventListener("change", paint);

const chosen = new Set();
const ctx = {
	kept, keep, chosen,
	can: (a) => meta.actions.includes(a),
	go: (hash) => { if (location.hash === hash) route(); else location.hash = hash; },
	now: () => new Date(Date.now() + skew),
	refresh: () => load(),
	say(text) { trouble.textContent = text; trouble.hidden = !text; said = Date.now(); },
};

function route() {
	const [path, q] = (location.hash.slice(1) || "/").split("?");
	ctx.path = location.hash.slice(1); ctx.params = new URLSearchParams(q || ""); ctx.meta = meta;
	const parts = path.split("/").filter(Boolean);
	if (parts[0] !== "executions" || parts.length > 1) chosen.clear();
	page = parts.length === 0 ? mapPage(ctx) : parts[0] === "workers" ? workersPage(ctx) : parts[0] === "executions" && parts[1] ? executionPage(ctx, decodeURIComponent(parts[1])) : parts[0] === "executions" ? listPage(ctx) : mapPage(ctx);
	for (const a of document.querySelectorAll("nav a")) {
		const here = a.getAttribute("href") === "#/" + (parts[0] || "");
		if (here) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
	}
	document.title = `${page.title} · ${meta.title}`;
	if (Date.now() - said > 1000) ctx.say("");
	main.replaceChildren(h("p", { class: "soft" }, "Loading …"));
	load(true);
}

async function load(fresh) {
	clearTimeout(timer);
	loading?.abort();
	const mine = loading = new AbortController(), shown = page;
	try {
		const data = await get(shown.path, mine.signal);
		if (mine.signal.aborted) return;
		// What somebody is writing in, or has opened, stays.
		if (fresh || !(main.contains(document.activeElement) && document.activeElement.matches("input, textarea, select"))) {
			const open = [...main.querySelectorAll("details")].map((d) => d.open);
			main.replaceChildren(...shown.render(data).flat(Infinity).filter((x) => x !== "" && x !== undefined && x !== null && x !== false));
			if (!fresh) [...main.querySelectorAll("details")].forEach((d, i) => { if (open[i] !== undefined) d.open = open[i]; });
		}
		got = Date.now();
		if (trouble.dataset.lost) { delete trouble.dataset.lost; ctx.say(""); }
	} catch (e) {
		if (mine.signal.aborted) return;
		ctx.say(e.message);
		if (e.status === 0 || e.status >= 500) trouble.dataset.lost = "1";
		if (fresh) main.replaceChildren(h("p", {}, e.code === "not_supported" ? "This store cannot be queried. Single executions can be opened by their address, and workers are shown." : "There is nothing to show."));
	}
	loading = null;
	next();
}
function next() {
	clearTimeout(timer);
	const every = Number(poll.value);
	if (every > 0 && !document.hidden) timer = setTimeout(() => load(), every * 1000);
}
poll.addEventListener("change", () => { keep("poll", poll.value); next(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden && Number(poll.value) > 0) load(); else next(); });
addEventListener("hashchange", route);
setInterval(() => {
	const old = (Date.now() - got) / 1000, every = Number(poll.value);
	age.textContent = !got ? "" : every === 0 ? "paused" : old > every * 3 + 5 ? `old data: ${Math.round(old)} s` : "live";
}, 1000);

async function begin() {
	try {
		meta = await get("meta");
		skew = new Date(meta.now) - Date.now();
		const every = kept("poll", String(Math.round(meta.poll_ms / 1000)));
		if (![...poll.options].some((o) => o.value === every)) poll.append(h("option", { value: every }, `${every} s`));
		poll.value = every;
		route();
	} catch (e) {
		ctx.say(e.message);
		main.replaceChildren(h("p", {}, "Trying again …"));
		setTimeout(begin, 3000);
	}
}
begin();
