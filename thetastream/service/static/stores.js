// Shows each store: its last snapshots, its latest results, and a plot of two columns.

import { ask } from "/page/connection.js";
import { html } from "/page/elements.js";
import { StoreCard } from "/page/store_card.js";

export class Stores {
  constructor(place) {
    this.place = place;
    this.cards = null;
  }

  // A card stays in place between two looks, so that what the user has chosen stays chosen.
  async look() {
    if (this.cards === null) {
      const { stores } = await ask("/stores");
      this.cards = Object.keys(stores).map((name) => new StoreCard(name, stores[name]));
      const none = html("p", { class: "quiet" }, "The service has no store: thetastream serve PATH.");
      this.place.replaceChildren(...(this.cards.length ? this.cards.map((card) => card.element) : [none]));
    }
    for (const card of this.cards) await card.look();
  }
}
