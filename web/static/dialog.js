import { h } from "./dom.js";

// ask shows what would be done, and returns the reason that was given, or null.
export function ask(title, body, { reason = true, fields = [] } = {}) {
	return new Promise((done) => {
		const why = h("input", { name: "reason", required: reason, maxlength: 2000, autocomplete: "off" });
		const dialog = h("dialog", { "aria-label": title, onclose: () => { dialog.remove(); done(dialog.returnValue === "go" ? why.value : null); } },
			h("form", { class: "form", method: "dialog" }, h("h2", {}, title), body, fields, h("label", {}, "Reason, for the audit trail", why),
				h("div", { class: "acts" }, h("button", { class: "main", value: "go" }, "Do it"), h("button", { type: "button", onclick: () => dialog.close() }, "Leave it"))));
		document.body.append(dialog);
		dialog.showModal();
		why.focus();
	});
}
