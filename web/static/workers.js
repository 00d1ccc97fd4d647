import { h, ago, table, chip, link, number } from "./dom.js";
import { post } from "./api.js";
import { ask } from "./dialog.js";

export function workersPage(ctx) {
	return {
		path: "workers",
		title: "Workers",
		render(o) {
			const now = ctx.now();
			const toggle = async (scope, pause) => {
				const reason = await ask(`${pause ? "Pause" : "Go on with"} ${Object.entries(scope)[0].join(" ")}`, h("p", {}, pause ? "Nothing new is begun there. What runs comes to its end." : "Work is taken up again."));
				if (reason === null) return;
				try { await post("pause", { ...scope, pause, reason }); } catch (e) { ctx.say(e.message); }
				ctx.refresh();
			};
			const button = (scope) => {
				if (!ctx.can("pause")) return "";
				const [k, v] = Object.entries(scope)[0], paused = o.pauses.some((p) => p[k] === v);
				return h("button", { type: "button", onclick: () => toggle(scope, !paused) }, paused ? "go on" : "pause");
			};
			const partitions = [...new Set([...(o.queues || []).map((d) => d.partition), ...o.workers.flatMap((w) => Object.keys(w.partitions))])].filter(Boolean).sort();
			return [h("h1", {}, "Workers and partitions"),
				h("section", {}, h("h2", {}, "Health: ", h("span", { class: `chip c-${o.health.level === "ok" ? "completed" : o.health.level === "info" ? "waiting" : o.health.level === "degraded" ? "stalled" : "failed"}` }, o.health.level)), table(["Code", "Level", "Detail", { n: "Count" }], o.health.causes.map((c) => [h("code", {}, c.code), c.level, c.detail, c.count ? number(c.count) : ""]), "Nothing to worry about.")),
				h("section", {}, h("h2", {}, "Workers"), table(["Worker", "Alive", "Seen", "Swept", "Partitions", { n: "Running" }, "At work on", ""], o.workers.map((w) => [w.name, w.alive ? chip("running") : chip("failed"), ago(w.seen_at, now), w.swept_at ? ago(w.swept_at, now) : "", Object.entries(w.partitions).map(([k, n]) => `${k || "all"}: ${n}`).join(", "), number(w.running), (w.attempts || []).slice(0, 5).map((a) => [link(a.execution, `${a.saga} ${a.step}`), " "]), button({ worker: w.name })]), "No worker has reported.")),
				h("section", {}, h("h2", {}, "Partitions"), table(["Partition", { n: "Ready pointers" }, { n: "Consumers" }, ""], partitions.map((p) => { const d = (o.queues || []).find((x) => x.partition === p); return [p, d ? number(d.ready) : "", d ? number(d.consumers) : "", button({ partition: p })]; }), "None.")),
				h("section", {}, h("h2", {}, "Sagas"), table(["Saga", ""], [...new Set(ctx.meta.sagas.map((g) => g.saga))].map((g) => [h("a", { href: `#/executions?saga=${encodeURIComponent(g)}` }, g), button({ saga: g })]), "None is known.")),
				h("section", {}, h("h2", {}, "Paused"), table(["What", "By", "Why", "Since"], o.pauses.map((p) => [Object.entries(p).filter(([k]) => ["partition", "saga", "worker", "schedule"].includes(k)).map((e) => e.join(" ")).join(), p.actor, p.reason, ago(p.at, now)]), "Nothing is paused."))];
		},
	};
}
