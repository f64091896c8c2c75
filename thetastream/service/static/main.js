// Asks the service again and again, and shows its answers. A connection that is lost is tried again.

import { TokenNeeded, ask, keepToken } from "/page/connection.js";
import { clock } from "/page/format.js";
import { showQueries } from "/page/queries.js";
import { Stores } from "/page/stores.js";

const PERIOD_MS = 1000;
const LONGEST_PERIOD_MS = 8000;
const status = document.getElementById("connection");
const form = document.getElementById("token-form");
const stores = new Stores(document.getElementById("stores"));
let pauseMs = PERIOD_MS;
let last = null;

async function look() {
  try {
    showQueries(document.getElementById("queries"), await ask("/queries?epochs=120"));
    await stores.look();
    last = new Date().toISOString();
    pauseMs = PERIOD_MS;
    say("connected", "Connected, live");
  } catch (error) {
    if (error instanceof TokenNeeded) {
      askForToken();
      return;
    }
    pauseMs = Math.min(2 * pauseMs, LONGEST_PERIOD_MS);
    const since = last === null ? "" : `, figures are of ${clock(last)}`;
    const why = error instanceof TypeError || error.name === "TimeoutError" ? "no answer" : error.message;
    say("lost", `Not connected (${why})${since}; trying again`);
  }
  setTimeout(look, pauseMs);
}

function say(state, text) {
  // A screen reader speaks each change, so an equal text is not written again.
  if (status.textContent !== text) status.textContent = text;
  status.dataset.state = state;
}

function askForToken() {
  say("lost", "The service needs its token");
  form.hidden = false;
  document.getElementById("token").focus();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(document.getElementById("token").value);
  form.hidden = true;
  say("connecting", "Connecting");
  look();
});

look();
