mod hand;
mod scoreboard;
mod sim;
mod tables;
mod transfers;
