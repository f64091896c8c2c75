// Lists what requests and policies have changed, the newest first.

import { html } from "/page/elements.js";
import { formatTime } from "/page/format.js";

export function listChanges(join) {
  const shed = join.shed_factor > 0
    ? html("p", {}, `The shedder drops at least ${Math.round(100 * join.shed_factor)} % of the tuples.`) : null;
  if (join.changes.length === 0) {
    return html("div", {}, shed, html("p", { class: "quiet" }, "Nothing has changed in the epochs that are kept."));
  }
  return html("div", {}, shed, html("ol", { class: "changes" }, ...join.changes.toReversed().map((change) =>
    html("li", {}, html("span", { class: "quiet" }, `${formatTime(change.began)}, epoch ${change.epoch}: `), change.what))));
}
