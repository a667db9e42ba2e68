// A page that has the tables of its runs in itself.
"use strict";
showRuns(JSON.parse(document.getElementById("data")?.textContent || ""));
