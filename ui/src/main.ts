import { mount } from "svelte";
import "./styles/app.css";
import App from "./views/App.svelte";
import { embedded } from "./api/embedded.js";
import { route } from "./state/route.svelte.js";
import { theme } from "./state/theme.svelte.js";

theme.start();
route.start();
// A report in one file has nothing to open: before the first screen is drawn, which would ask a server that is not there.
if (embedded) route.beginAt("#/s/report");
const target = document.getElementById("app");
if (target) mount(App, { target });
