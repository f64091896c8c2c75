// Shows each store: its last snapshots, its latest results, and a plot of two columns.

import { ask } from "/page/connection.js";
import { html } from "/page/elements.js";
import { StoreCard } from "/page/store_card.js";

export class Stores {
  constructor(place) {
    this.place = place;
    this.cards = null;
  }

  // The cards are made once, so that the columns that the user has chosen stay chosen.
  async refresh() {
    if (this.cards === null) {
      const { stores } = await ask("/stores");
      this.cards = Object.keys(stores).map((name) => new StoreCard(name, stores[name]));
      const none = html("p", { class: "quiet" }, "The service has no store. Start it with a store: thetastream serve PATH.");
      this.place.replaceChildren(...(this.cards.length ? this.cards.map((card) => card.element) : [none]));
    }
    for (const card of this.cards) await card.refresh();
  }
}
