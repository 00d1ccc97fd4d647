import { h, number, query, chip, link, ago, table } from "./dom.js";
import { post } from "./api.js";
import { ask } from "./dialog.js";

const fields = [
	["saga", "Saga"], ["step", "Step"], ["resource", "Resource (a part)"], ["key", "Start key"], ["tag", "Tag (name=value)"], ["partition", "Partition"],
	["error_class", "Error class"], ["stuck_for", "Not moved for (15m, 2h)"],
];
const statuses = ["", "running", "waiting", "halted", "compensating", "completed", "compensated", "failed", "compensation_failed", "cancelled"];
const attentions = ["", "halted", "failed", "compensation_failed", "in_doubt", "stalled", "overdue"];
export const plannable = ["retry", "compensate", "cancel", "halt", "resume", "skip_step"];

export function listPage(ctx) {
	const q = new URLSearchParams(ctx.params);
	const filter = new URLSearchParams(q);
	filter.delete("after"); filter.delete("limit");
	const chosen = ctx.chosen;
	return {
		path: `executions?${q}`,
		title: "Executions",
		render(o) {
			const now = ctx.now();
			const search = (form) => {
				const next = new URLSearchParams();
				for (const [k, v] of q) if (!form.elements[k] && k !== "after") next.append(k, v);
				for (const el of form.elements) if (el.name && el.value.trim()) next.append(el.name, el.value.trim());
				ctx.go(`#/executions?${next}`);
			};
			const select = (name, label, list) => h("label", {}, label, h("select", { name, onchange: (e) => search(e.target.form) },
				[...new Set([...list, q.get(name) || ""])].map((v) => h("option", { value: v, selected: v === (q.get(name) || "") }, v || "any"))));
			const form = h("form", { class: "bar", role: "search", onsubmit: (e) => { e.preventDefault(); search(e.target); } },
				select("status", "Status", statuses), select("attention", "Attention", attentions),
				fields.map(([name, label]) => h("label", {}, label, h("input", { name, value: q.get(name) || "", autocomplete: "off" }))),
				h("button", { class: "main" }, "Search"), h("a", { href: "#/executions" }, "Clear"));
			const others = [...filter].filter(([k]) => !form.elements[k]);
			const can = plannable.filter((a) => ctx.can(a));
			const row = (x) => {
				const box = h("input", { type: "checkbox", "aria-label": `Choose ${x.id}`, checked: chosen.has(x.id), onchange: (e) => { e.target.checked ? chosen.add(x.id) : chosen.delete(x.id); count(); } });
				return [can.length ? box : "", link(x.id), x.saga, chip(x.status), x.direction === "compensate" && x.step ? `undo ${x.step}` : x.step, [x.resource.type, x.resource.id].filter(Boolean).join("/"), ago(x.progress_at, now), x.failure ? x.failure.class : x.reason || ""];
			};
			const said = h("span", { role: "status", class: "soft" });
			const count = () => { said.textContent = chosen.size ? `${chosen.size} chosen` : filter.size ? "all that the filter selects" : "choose some, or filter"; };
			const act = h("select", { "aria-label": "Act" }, can.map((a) => h("option", { value: a }, a.replaceAll("_", " "))));
			const go = h("button", { type: "button", onclick: () => bulk(ctx, act.value, chosen.size ? query({ id: [...chosen] }) : filter.toString(), chosen) }, "Plan …");
			const body = table(["", "Execution", "Saga", "Status", "Step", "Resource", "Moved", "Error"], o.executions.map(row), "Nothing is like that.");
			count();
			return [h("h1", {}, "Executions"), form, others.length ? h("p", { class: "small soft" }, "Also: ", others.map(([k, v]) => `${k}=${v}`).join(", ")) : "",
				can.length ? h("div", { class: "bar" }, act, go, said) : "", h("section", {}, body),
				o.truncated ? h("p", { class: "soft" }, "There may be more: it was not looked at all.") : "",
				o.next ? h("a", { href: `#/executions?${filter}&after=${o.next}`.replace("?&", "?") }, "Next page") : ""];
		},
	};
}

async function bulk(ctx, act, filter, chosen) {
	if (!filter) return ctx.say("Choose executions, or filter: a bulk act on everything is not offered.");
	let plan;
	try { plan = await post("bulk", { act, filter, reason: "plan", dry_run: true, limit: 500 }); } catch (e) { return ctx.say(e.message); }
	const ends = {};
	for (const i of plan.items) { const k = i.ends_as ? `would end ${i.ends_as}` : `${i.result}${i.reason ? ": " + i.reason : ""}`; ends[k] = (ends[k] || 0) + 1; }
	const reason = await ask(`${act.replaceAll("_", " ")} ${number(plan.items.length)} executions`, h("ul", {}, Object.entries(ends).map(([k, n]) => h("li", {}, `${number(n)} ${k}`)), plan.next ? h("li", {}, "and more: these are the newest 500") : ""));
	if (reason === null) return;
	try {
		const done = await post("bulk", { act, filter, reason, request: crypto.randomUUID(), limit: 500 });
		chosen.clear();
		ctx.say(`${act}: ${Object.entries(done.counts).map(([k, n]) => `${n} ${k}`).join(", ")}${done.error ? ". " + done.error : ""}`);
	} catch (e) { ctx.say(e.message); }
	ctx.refresh();
}
