import { h, s, number, span, query, chip, link, ago, table } from "./dom.js";

const lanes = 3;

// line draws the steps of a saga, the undo lane below, and what is there.
export function line(outline, at) {
	const steps = outline.steps, w = Math.max(640, steps.length * 150), gap = w / steps.length, y = 62, undo = 112;
	const x = (i) => gap * (i + 0.5);
	const svg = s("svg", { class: "line", viewBox: `0 0 ${w} 150`, width: w, height: 150, role: "img", "aria-label": `Saga ${outline.saga}: ${steps.map((t) => t.name).join(", ")}` },
		s("line", { class: "rail", x1: x(0), y1: y, x2: x(steps.length - 1), y2: y }),
		s("line", { class: "undo", x1: x(0), y1: undo, x2: x(steps.length - 1), y2: undo }));
	steps.forEach((step, i) => {
		const here = at(step);
		svg.append(s("a", { href: here.href }, s("title", {}, here.title || step.name),
			s("circle", { class: `stop ${here.class || ""}`, cx: x(i), cy: y, r: 8 }),
			s("text", { x: x(i), y: y - 36, "text-anchor": "middle" }, step.name.length > 20 ? step.name.slice(0, 19) + "…" : step.name),
			s("text", { class: "soft", x: x(i), y: y - 22, "text-anchor": "middle" }, here.note || "")));
		if (step.compensable) svg.append(s("circle", { class: `stop ${here.undo || ""}`, cx: x(i), cy: undo, r: 5 }));
		(here.marks || []).forEach(([kind, text], k) => svg.append(s("text", { class: `c-${kind}`, x: x(i), y: y + 24 + 12 * k, "text-anchor": "middle" }, text)));
		for (const [dir, list] of Object.entries(here.tokens || {})) {
			const back = dir === "compensate", sign = back ? -1 : 1;
			list.slice(0, lanes).forEach((t, k) => svg.append(s("circle", { class: `token ${dir}`, cx: x(i) + sign * (12 + t.part * (gap - 34)), cy: (back ? undo : y) - 7 * (k - 1), r: 3.5 })));
			if (list.length > lanes) svg.append(s("text", { class: "more", x: x(i) + sign * 14, y: (back ? undo : y) + (back ? 20 : -12) }, `+${list.length - lanes}`));
		}
	});
	return svg;
}

export function mapPage(ctx) {
	const range = ctx.params.get("range") || ctx.kept("range", "24h");
	return {
		path: `overview?${query({ range })}`,
		title: "Map",
		render(o) {
			const now = new Date(o.at), meta = ctx.meta;
			const sum = (list, ok) => list.filter(ok).reduce((n, c) => n + c.n, 0);
			const since = o.from;
			const key = (cls, label, n, q) => h("a", { class: `key c-${cls} ${n ? "" : "none"}`, href: `#/executions?${query(q)}` }, h("b", {}, number(n)), h("span", {}, label));
			const keys = h("div", { class: "keys" },
				key("moving", "moving", sum(o.counts, (c) => c.status === "running"), { status: "running" }),
				key("compensating", "compensating", sum(o.counts, (c) => c.status === "compensating"), { status: "compensating" }),
				key("waiting", "waiting", sum(o.counts, (c) => c.status === "waiting"), { status: "waiting" }),
				key("halted", "halted", sum(o.counts, (c) => c.status === "halted"), { status: "halted" }),
				key("stalled", "stalled", sum(o.stalled, () => true), { attention: "stalled" }),
				key("failed", `failed in ${range}`, sum(o.failed, (c) => c.status !== "compensated"), { status: "failed,compensation_failed", finished_from: since }));
			const ranges = h("div", { class: "acts", role: "group", "aria-label": "Range" }, ["1h", "24h", "7d"].map((r) =>
				h("button", { type: "button", "aria-pressed": String(r === range), onclick: () => { ctx.keep("range", r); ctx.go(`#/?range=${r}`); } }, r)));
			// The newest version of each saga is drawn, those without an outline as far as is known.
			const byName = new Map(meta.sagas.map((g) => [g.saga, g]));
			for (const c of [...o.counts, ...o.latency]) if (!byName.has(c.saga)) {
				byName.set(c.saga, { saga: c.saga, version: 0, steps: [...new Set([...o.counts, ...o.latency].filter((d) => d.saga === c.saga && d.step).map((d) => d.step))].map((name) => ({ name, compensable: true })) });
			}
			const busy = (g) => sum(o.counts, (c) => c.saga === g.saga) + o.failures.filter((f) => f.saga === g.saga).reduce((n, f) => n + f.n, 0);
			const maps = [...byName.values()].filter((g) => g.steps.length > 0).sort((a, b) => busy(b) - busy(a) || a.saga.localeCompare(b.saga)).map((g) => h("section", { "aria-label": `Saga ${g.saga}` },
				h("h2", {}, h("a", { href: `#/executions?${query({ saga: g.saga })}` }, g.saga), g.version ? h("span", { class: "soft small" }, ` version ${g.version}`) : ""),
				line(g, (step) => {
					const mine = (c) => c.saga === g.saga && c.step === step.name;
					const lat = o.latency.find((l) => mine(l) && l.direction === "execute");
					const median = lat ? Math.max(lat.p50_ms, 200) : 5000;
					const tokens = {};
					for (const m of o.moving.filter(mine)) (tokens[m.direction] ||= []).push({ part: Math.min(0.95, (now - new Date(m.since)) / median / 2) });
					const marks = [["waiting", sum(o.counts, (c) => mine(c) && c.status === "waiting")], ["halted", sum(o.counts, (c) => mine(c) && c.status === "halted")],
						["stalled", sum(o.stalled, mine)], ["failed", o.failures.filter(mine).reduce((n, f) => n + f.n, 0)]].filter(([, n]) => n).map(([k, n]) => [k, `${number(n)} ${k}`]);
					return { href: `#/executions?${query({ saga: g.saga, step: step.name })}`, note: lat ? `${span(lat.p50_ms)} · p95 ${span(lat.p95_ms)}` : "", tokens, marks,
						title: `${step.name}: ${marks.map((m) => m[1]).join(", ") || "nothing to see to"}` };
				})));
			const failures = table(["Error", "Saga", "Step", { n: "Times" }, "Last"], o.failures.slice(0, 12).map((f) => [
				h("a", { href: `#/executions?${query({ saga: f.saga, failed_class: f.class, failed_step: f.step, failed_direction: f.direction, failed_from: since })}` }, f.class || "(no class)", ` (${number(f.executions)} executions)`),
				f.saga, f.direction === "compensate" ? `undo ${f.step}` : f.step, number(f.n), ago(f.last, now)]), "Nothing failed.");
			const waiting = table(["Execution", "Saga", "For", "Why"], o.longest.map((x) => [link(x.id), x.saga, span(now - new Date(x.progress_at)), [chip(x.status), " ", x.diagnosis.sentence]]), "Nothing waits.");
			return [h("h1", { class: "skip" }, "Map"), keys, ranges, h("p"), maps.length ? maps : h("section", {}, h("p", {}, "No saga is known yet: start a worker.")),
				h("section", {}, h("h2", {}, `Started and ended, ${range}`), o.series_since ? h("p", { class: "soft small" }, "Too many to count all: whole since ", new Date(o.series_since).toLocaleString()) : "", chart(o)),
				h("div", { class: "cols" }, h("section", {}, h("h2", {}, "Needs attention"), failures), h("section", {}, h("h2", {}, "Waiting the longest"), waiting)),
				o.truncated.length ? h("p", { class: "soft small" }, `Not whole, as there is too much: ${o.truncated.join(", ")}.`) : ""];
		},
	};
}

function chart(o) {
	const bad = (b) => Object.entries(b.ended || {}).reduce((n, [k, v]) => n + (k === "completed" ? 0 : v), 0);
	const top = Math.max(1, ...o.series.map((b) => Math.max(b.started, (b.ended?.completed || 0) + bad(b))));
	const w = 1000 / Math.max(1, o.series.length);
	const svg = s("svg", { class: "chart", viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": `At most ${top} in ${span(o.bucket_seconds * 1000)}` });
	o.series.forEach((b, i) => {
		const bar = (cls, from, n) => n && svg.append(s("rect", { class: cls, x: i * w + w * 0.1, width: w * 0.8, y: 100 - (from + n) / top * 100, height: n / top * 100 }, s("title", {}, `${new Date(b.at).toLocaleString()}: ${n} ${cls}`)));
		bar("started", 0, b.started); bar("completed", 0, b.ended?.completed || 0); bar("failed", b.ended?.completed || 0, bad(b));
	});
	const rows = o.series.filter((b) => b.started || b.ended).map((b) => [new Date(b.at).toLocaleString(), number(b.started), number(b.ended?.completed || 0), number(bad(b))]);
	return [svg, h("p", { class: "small soft" }, `Each bar is ${span(o.bucket_seconds * 1000)}: started (pale), completed, ended otherwise.`),
		h("details", {}, h("summary", {}, "As a table"), table(["From", { n: "Started" }, { n: "Completed" }, { n: "Ended otherwise" }], rows, "Nothing happened."))];
}
