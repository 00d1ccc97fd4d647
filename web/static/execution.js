import { h, span, chip, link, ago, time, table, query } from "./dom.js";
import { get, post } from "./api.js";
import { ask } from "./dialog.js";
import { line } from "./map.js";
import { plannable } from "./executions.js";

export function executionPage(ctx, id) {
	return {
		path: `executions/${encodeURIComponent(id)}`,
		title: "Execution",
		render(x) {
			const now = new Date(x.now), finished = !!x.finished_at;
			const outline = { saga: x.saga, steps: x.ledger.map((e) => ({ name: e.name, compensable: e.compensable })) };
			const drawing = x.ledger.length ? line(outline, (step) => {
				const e = x.ledger.find((l) => l.name === step.name), here = step.name === x.step && !finished;
				return { href: "#" + ctx.path, class: `${e.status} ${here && x.direction === "execute" ? "here" : ""}`, undo: here && x.direction === "compensate" ? "here" : "", note: e.status, marks: here ? [["waiting", "← here"]] : [] };
			}) : h("p", { class: "soft" }, "No worker has looked at it yet: its plan is not known.");
			const acts = plannable.filter((a) => ctx.can(a)).map((a) => h("button", { type: "button", class: x.diagnosis?.act === a ? "main" : undefined, onclick: () => act(ctx, x, a) }, a.replaceAll("_", " ")));
			if (ctx.can("rerun") && finished) acts.push(h("button", { type: "button", onclick: () => send(ctx, x, { act: "rerun" }, "rerun: start it again from its first state") }, "rerun"));
			if (ctx.can("move") && !finished) acts.push(h("button", { type: "button", onclick: () => withField(ctx, x, "move", "partition", "Partition", x.partition) }, "move"));
			if (ctx.can("reschedule") && x.wake_at && !finished) acts.push(h("button", { type: "button", onclick: () => withField(ctx, x, "reschedule", "at", "At (RFC 3339)", x.now) }, "reschedule"));
			if (ctx.can("edit_state") && x.state_text && ["halted", "failed", "compensation_failed"].includes(x.status)) acts.push(h("button", { type: "button", onclick: () => edit(ctx, x) }, "edit state"));
			if (ctx.can("resolve")) for (const e of x.ledger.filter((l) => l.status === "in_doubt")) for (const is of ["done", "pending"]) {
				acts.push(h("button", { type: "button", onclick: () => send(ctx, x, { act: "resolve", step: e.name, is }, `resolve ${e.name}: ${is === "done" ? "it had its effect" : "it had none"}`) }, `${e.name} ${is === "done" ? "had its effect" : "had no effect"}`));
			}
			const facts = [["Resource", [x.resource.type, x.resource.id].filter(Boolean).join("/")], ["Start key", x.key], ["Partition", x.partition], ["Step", x.step && `${x.step} (${x.direction}, epoch ${x.epoch})`],
				["Reason", x.reason && `${x.reason}${x.reason_by ? ` (${x.reason_by})` : ""}`], ["Failure", x.failure && `${x.failure.class} in ${x.failure.step}: ${x.failure.message}`], ["Cause", x.cause && `${x.cause.class} in ${x.cause.step}: ${x.cause.message}`],
				["Requested", x.request && `${x.request.turn || "halt"} by ${x.request.actor}: ${x.request.reason}`], ["Started", [time(x.created_at), ` (${ago(x.created_at, now)})`]], ["Moved", ago(x.progress_at, now)], ["Due", x.due_at && time(x.due_at)], ["Not before", x.wake_at && time(x.wake_at)],
				["Deadline", x.deadline && time(x.deadline)], ["Finished", x.finished_at && time(x.finished_at)], ["Parent", x.parent && link(x.parent.execution)], ["Follows", x.follows && link(x.follows)], ["Replaced by", x.replaced_by && link(x.replaced_by)],
				["Continues", x.continues && link(x.continues)], ["Continued as", x.continued_as && link(x.continued_as)], ["Rerun of", x.rerun_of && link(x.rerun_of)], ["Rerun as", x.rerun_as && link(x.rerun_as)],
				["Tags", x.tags && Object.entries(x.tags).map(([k, v]) => `${k}=${v}`).join(", ")]].filter(([, v]) => v);
			const running = x.running && h("section", {}, h("h2", {}, "Running now"), h("p", {}, `Attempt ${x.running.attempt} by ${x.running.worker}, for ${span(now - new Date(x.running.started_at))}`),
				x.running.progress ? [h("progress", { max: x.running.progress.total || 1, value: x.running.progress.total ? x.running.progress.done : undefined, "aria-label": "Progress" }), ` ${x.running.progress.done}${x.running.progress.total ? " of " + x.running.progress.total : ""} ${x.running.progress.note || ""}`] : "");
			const moments = [...x.attempts.map((a) => ({ at: a.started_at, cells: [time(a.started_at), a.direction === "compensate" ? `undo ${a.step}` : a.step, chip(a.status), a.finished_at ? span(new Date(a.finished_at) - new Date(a.started_at)) : "", [a.failure ? `${a.failure.class}: ${a.failure.message}` : a.reason || "", a.late ? ` late: ${a.late_status}` : "", a.stack ? h("details", {}, h("summary", {}, "stack"), h("pre", {}, a.stack)) : ""], a.worker] })),
				...x.audit.map((a) => ({ at: a.at, cells: [time(a.at), a.act.replaceAll("_", " "), a.before === a.after ? "" : [chip(a.before), " → ", chip(a.after)], "", [a.reason, a.detail ? h("pre", {}, JSON.stringify(a.detail, null, 1)) : ""], a.actor] }))]
				.sort((a, b) => new Date(a.at) - new Date(b.at)).map((m) => m.cells);
			const states = x.state_hidden ? h("p", { class: "soft" }, "You may not see its state.") : [["State", x.state_text], ["Started with", x.initial_text], ["Checkpoint", x.checkpoint_text]].filter(([, v]) => v).map(([k, v]) => h("details", { open: k === "State" }, h("summary", {}, k), h("pre", {}, v)));
			const others = (title, list) => list.length ? h("section", {}, h("h2", {}, title), table(["Execution", "Saga", "Status", "Step", "Moved"], list.map((y) => [link(y.id), y.saga, chip(y.status), y.step, ago(y.progress_at, now)]), "")) : "";
			return [h("h1", {}, `${x.saga} `, chip(x.status), " ", h("code", { class: "soft small" }, x.id)),
				x.diagnosis ? h("p", { class: `diagnosis c-${x.status}`, id: "diagnosis" }, x.diagnosis.sentence) : "", h("div", { class: "acts" }, acts), h("p"), h("section", {}, drawing), running, gate(ctx, x),
				h("div", { class: "cols" }, h("section", {}, h("h2", {}, "Facts"), h("dl", {}, facts.map(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]))), h("section", {}, h("h2", {}, "State"), states)),
				h("section", {}, h("h2", {}, "History"), table(["At", "What", "Result", "Took", "Detail", "By"], moments, "Nothing yet.")),
				x.inbox.length ? h("section", {}, h("h2", {}, "Inbox"), table(["At", "Signal", "Key", "From", "Detail"], x.inbox.map((m) => [time(m.at), m.name, m.key || "", m.actor || "", [m.spent ? "spent" : m.step ? `taken by ${m.step}` : "kept", m.payload !== undefined ? h("pre", {}, JSON.stringify(m.payload)) : ""]]), "")) : "",
				others("Children", x.children), others("Other executions of the resource", x.related)];
		},
	};
}

function gate(ctx, x) {
	const g = x.gate;
	if (!g || g.open || !g.signals?.length || !ctx.can("signal") || x.finished_at) return "";
	const signal = async (name, payload, label) => {
		const reason = await ask(`Signal ${name}: ${label}`, h("pre", {}, JSON.stringify(payload)));
		if (reason === null) return;
		try { ctx.say(`Signal: ${(await post(`executions/${x.id}/signal`, { name, payload, reason, key: crypto.randomUUID() })).result}`); } catch (e) { ctx.say(e.message); }
		ctx.refresh();
	};
	const free = h("textarea", { rows: 3, "aria-label": "Payload, in JSON" });
	free.value = "null";
	const name = h("select", { "aria-label": "Signal" }, g.signals.map((n) => h("option", { value: n }, n)));
	return h("section", {}, h("h2", {}, g.prompt || `Waits for ${g.signals.join(g.all ? " and " : " or ")}`), h("div", { class: "acts" }, (g.choices || []).map((c) => h("button", { type: "button", onclick: () => signal(c.signal || c.name || g.signals[0], c.payload, c.label) }, c.label))),
		h("details", {}, h("summary", {}, "Send a signal"), h("div", { class: "form" }, name, free, h("button", { type: "button", onclick: () => { let p; try { p = JSON.parse(free.value); } catch { return ctx.say("That is no JSON."); } signal(name.value, p, "as written"); } }, "Send …"))));
}

async function act(ctx, x, name) {
	let plan;
	try { plan = await get(`executions/${x.id}/plan?${query({ act: name })}`); } catch (e) { return ctx.say(e.message); }
	if (plan.refused) return ctx.say(`${name.replaceAll("_", " ")}: ${plan.refused}`);
	const steps = plan.steps || [];
	const body = [plan.requested ? h("p", {}, "An attempt is running: the act is left to it as a request.") : "",
		steps.length ? h("ol", {}, steps.map((st) => h("li", {}, st.direction === "compensate" ? `undo ${st.name}` : st.name, st.in_doubt ? " — may have had its effect before" : "", st.waits ? ` — waits: ${st.waits}` : "", st.conditional ? " — if its condition holds" : ""))) : h("p", {}, "No step is run or undone."),
		plan.cannot?.length ? h("p", { class: "c-failed" }, `Stays as it is: ${plan.cannot.join(", ")}`) : "", h("p", {}, "It ends ", chip(plan.ends_as || "halted"), plan.halts_at ? ` at ${plan.halts_at}` : "")];
	await send(ctx, x, { act: name, revision: plan.revision }, name.replaceAll("_", " "), body);
}

async function send(ctx, x, body, title, shown, fields) {
	const reason = await ask(title, shown || "", { fields });
	if (reason === null) return;
	try {
		const done = await post(`executions/${x.id}/act`, { ...body, ...(typeof body.late === "function" ? body.late() : {}), late: undefined, reason, request: crypto.randomUUID() });
		ctx.say(done.rerun_as ? "Started again." : `Done: it is ${done.execution.status}.`);
		if (done.rerun_as) return ctx.go(`#/executions/${done.rerun_as}`);
	} catch (e) { ctx.say(e.message); }
	ctx.refresh();
}
function withField(ctx, x, act, name, label, value) {
	const input = h("input", { value, required: true });
	return send(ctx, x, { act, late: () => ({ [name]: input.value }) }, act, "", h("label", {}, label, input));
}
function edit(ctx, x) {
	const text = h("textarea", { rows: 16, spellcheck: "false" }), diff = h("pre", { class: "small", role: "status" });
	// Texts, not values: a number may have more digits than JavaScript keeps.
	text.value = x.state_text;
	const before = x.state_text.split("\n");
	text.addEventListener("input", () => {
		try { JSON.parse(text.value); } catch { diff.textContent = "That is no JSON yet."; return; }
		const after = text.value.split("\n");
		diff.textContent = [...before.filter((l) => !after.includes(l)).map((l) => "− " + l), ...after.filter((l) => !before.includes(l)).map((l) => "+ " + l)].join("\n") || "Nothing is changed.";
	});
	return send(ctx, x, { act: "edit_state", revision: x.revision, late: () => ({ state_text: text.value }) }, "edit state", "", [h("label", {}, "State", text), diff]);
}
