// Asks the service every second, and shows its answers. If the connection is lost, the page tries again less often.

import { TokenNeeded, ask, keepToken } from "/page/connection.js";
import { formatTime } from "/page/format.js";
import { showQueries } from "/page/queries.js";
import { Stores } from "/page/stores.js";

const PERIOD_MS = 1000;
const LONGEST_PERIOD_MS = 8000;
const status = document.getElementById("connection");
const form = document.getElementById("token-form");
const stores = new Stores(document.getElementById("stores"));
let pauseMs = PERIOD_MS;
let last = null;

async function refresh() {
  try {
    showQueries(document.getElementById("queries"), await ask("/queries?epochs=120"));
    await stores.refresh();
    last = new Date().toISOString();
    pauseMs = PERIOD_MS;
    say("connected", "Connected");
  } catch (error) {
    if (error instanceof TokenNeeded) {
      askForToken();
      return;
    }
    pauseMs = Math.min(2 * pauseMs, LONGEST_PERIOD_MS);
    const age = last === null ? "" : `The page shows the figures of ${formatTime(last)}. `;
    const why = error instanceof TypeError || error.name === "TimeoutError" ? "no answer" : error.message;
    say("lost", `Not connected (${why}). ${age}The page tries again.`);
  }
  setTimeout(refresh, pauseMs);
}

function say(state, text) {
  // A screen reader speaks each text that is written, so the same text is not written again.
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
  refresh();
});

refresh();
